"""What is installed: the lock holds what pyproject.toml asks for; the wheel runs beside the library's alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NOT_LOCKED = {"cluster", "docs"}  # cluster and docs have locks of their own


def asked(*extras: str) -> Iterator[Requirement]:
    """What the project asks for with these extras, and with those that they name."""
    lists = [PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras)]
    for requirement in map(Requirement, (one for several in lists for one in several)):
        if requirement.name == "fednoise_core":
            yield from asked(*requirement.extras)
        else:
            yield requirement


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_holds_every_extra():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {plain(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", text, re.MULTILINE)}
    for requirement in asked(*(EXTRAS.keys() - NOT_LOCKED)):
        assert plain(requirement.name) in locked, requirement.name
        assert requirement.specifier.contains(locked[plain(requirement.name)]), requirement


def test_the_lock_of_the_site_holds_what_it_asks_for():
    text = (ROOT / "requirements-docs.lock").read_text(encoding="utf-8")
    locked = {plain(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", text, re.MULTILINE)}
    for requirement in map(Requirement, EXTRAS["docs"]):
        assert requirement.specifier.contains(locked[plain(requirement.name)]), requirement


def test_the_library_asks_for_little():
    named = {plain(requirement.name) for requirement in asked()}
    few = {"filelock", "numpy", "pillow", "pyarrow", "pydantic", "safetensors", "scikit-learn", "scipy", "torch"}
    assert named == {*few, "tqdm"}
    assert {"workflow", "report", "cleanlab", "dev"} <= EXTRAS.keys()


def with_all_below(names: set[str]) -> set[str]:
    """These packages, and those that they need here."""
    found, waiting = set(), [plain(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            needs = map(Requirement, metadata.requires(name) or [])
            waiting += [plain(r.name) for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def link(package: str, folder: Path) -> None:
    """Links to all that an installed package has beside other packages."""
    dist = metadata.distribution(package)
    for top in {file.parts[0] for file in dist.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(dist.locate_file(top))).resolve())


@pytest.mark.wheel
@pytest.mark.skipif(not os.environ.get("FEDNOISE_WHEEL"), reason="opt-in: FEDNOISE_WHEEL=1")
def test_the_wheel_runs_the_readmes_lines_beside_the_librarys_packages_alone(tmp_path: Path):
    """Nothing is downloaded: the packages are those of this environment, and no others."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, cwd=tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (wheel,) = tmp_path.glob("fednoise_core-*.whl")
    install = [*pip, "install", "--no-deps", "--target", str(packages), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    for package in with_all_below({requirement.name for requirement in asked()}):
        link(package, packages)
    assert not (packages / "pandas").exists()
    assert not (packages / "snakemake").exists()
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "lines.py").write_text(code, encoding="utf-8")
    with open(tmp_path / "lines.py", "a", encoding="utf-8") as file:
        file.write("print(fn.__file__)\nrun.save('run')\nprint(fn.load('run').predict(data.x_test))\n")
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(tmp_path / "env/bin/python"), "-I", "lines.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "probably" in done.stdout
    assert str(packages) in done.stdout
    assert "<Predictions of 360 images" in done.stdout
