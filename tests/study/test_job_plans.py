"""Planning does not import the slow packages."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_default_study_is_planned_without_heavy_packages() -> None:
    code = """if True:
        import sys
        from workflow_scripts.config.project import Project
        from workflow_scripts.config.yaml_file import read_yaml
        from workflow_scripts.study.targets import Targets
        Targets(Project(read_yaml("config/config.yaml"))).study_targets("quick")
        print(sorted({"matplotlib", "pandas", "scipy", "sklearn", "torch"} & sys.modules.keys()))
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
