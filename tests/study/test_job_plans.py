"""Planning: in a job's own Snakemake as in the main process, and without the packages that take long to import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workflow_scripts.config.project import ON_GPU, Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.machine import device

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process exports is gone after the test."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(os, "environ", {**os.environ})
    os.environ.pop(ON_GPU, None)


def planned(name: str = "auto") -> Project:
    """The repository's project with this device."""
    return Project({**read_yaml("config/config.yaml"), "device": name})


@pytest.mark.parametrize("there", [[], ["GPU-0"]])
def test_jobs_go_by_the_gpus_of_the_main_process(monkeypatch: pytest.MonkeyPatch, there: list[str]) -> None:
    monkeypatch.setattr(device, "visible_gpus", lambda: there)
    planned().export_environment(main=True)
    monkeypatch.setattr(device, "visible_gpus", lambda: [] if there else ["GPU-1"])  # the machine of the job
    job = planned()
    job.export_environment(main=False)
    assert job.on_gpu == bool(there)
    another = planned()  # a main process that inherits the variable decides anew
    another.export_environment(main=True)
    assert another.on_gpu != bool(there)
    assert [planned(name).on_gpu for name in ("cpu", "cuda")] == [False, True]


def test_the_default_study_is_planned_without_heavy_packages() -> None:
    code = """if True:
        import sys
        from workflow_scripts.config.project import Project
        from workflow_scripts.config.yaml_file import read_yaml
        from workflow_scripts.study.targets import Targets
        Targets(Project(read_yaml("config/config.yaml"))).study_targets("quick")
        print(sorted({"matplotlib", "pandas", "scipy", "sklearn", "torch"} & sys.modules.keys()))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
