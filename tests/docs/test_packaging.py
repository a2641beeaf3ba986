"""The locks satisfy pyproject.toml, and the library needs no packages of the extras."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NOT_LOCKED = {"cluster", "docs", "flower"}  # they have locks of their own


def list_requirements(*extras: str) -> Iterator[Requirement]:
    """Yield the requirements of the project with these extras and the extras that they name."""
    lists = [PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras)]
    for requirement in map(Requirement, (text for texts in lists for text in texts)):
        if requirement.name == "fednoise":
            yield from list_requirements(*requirement.extras)
        else:
            yield requirement


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_library_requires_few_packages():
    named = {plain(requirement.name) for requirement in list_requirements()}
    few = {"filelock", "jinja2", "numpy", "pandas", "pillow", "pyarrow", "pydantic", "safetensors", "scikit-learn"}
    assert named == {*few, "scipy", "torch", "tqdm"}
    assert {"workflow", "report", "cleanlab", "dev"} <= EXTRAS.keys()


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("requirements.lock", EXTRAS.keys() - NOT_LOCKED),
        ("requirements-docs.lock", ["docs"]),
        ("requirements-flower.lock", ["flower"]),
    ],
)
def test_the_locks_satisfy_the_extras(file: str, extras: set[str]):
    text = (ROOT / file).read_text(encoding="utf-8")
    locked = {plain(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", text, re.MULTILINE)}
    needed = list_requirements(*extras) if file == "requirements.lock" else map(Requirement, EXTRAS[extras[0]])
    for requirement in needed:
        assert requirement.specifier.contains(locked[plain(requirement.name)]), requirement


def test_the_code_of_the_readme_finds_wrong_labels_without_packages_of_extras():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 11  # import and ten lines
    others = ("pandas", "matplotlib", "jinja2", "yaml", "snakemake", "torchvision", "cleanlab")
    absent = f"import sys\nsys.modules.update(dict.fromkeys({others}))\n"  # importing one of them fails
    report = "\nimport json; print(json.dumps(run.summary))"
    done = subprocess.run([sys.executable, "-c", absent + code + report], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    *printed, last = done.stdout.decode().splitlines()
    summary = json.loads(last)
    assert summary["accuracy"]["best"] > summary["accuracy"]["round0"] + 0.3
    assert summary["diagnostics"]["suspects_precision"] > 0.6  # 40 % of the labels are wrong: chance is .4
    assert any("probably" in line for line in printed)
