"""The code hash: comments, texts and formatting do not count, all other code that a step imports does."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from workflow_scripts.provenance import code_hash
from workflow_scripts.provenance.code_hash import closure_hash, module_file, read_modules
from workflow_scripts.provenance.step_code import CodeChanged, StepCode, read_registry

ROOT = Path(__file__).parents[2]
FILES = {
    "fednoise_core/__init__.py": "",
    "fednoise_core/a.py": "from fednoise_core import b\n\ndef f(x):\n    return b.g(x) + 1\n",
    "fednoise_core/b.py": "import json\n\ndef g(x):\n    return x\n",
    "fednoise_core/far/__init__.py": "LIST = {'one': 'fednoise_core.far.one:Thing'}\n",
    "fednoise_core/far/one.py": "from ..b import g\n",
    "fednoise_core/unused.py": "x = 1\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small project."""
    return write(tmp_path, FILES)


def test_closure_follows_imports_and_packages(root: Path) -> None:
    assert sorted(read_modules(root, ["fednoise_core/a.py"])) == [
        "fednoise_core/__init__.py",
        "fednoise_core/a.py",
        "fednoise_core/b.py",
    ]
    # a relative import, and the __init__.py of the package that importing runs
    assert set(read_modules(root, ["fednoise_core/far/one.py"])) >= {
        "fednoise_core/far/__init__.py",
        "fednoise_core/b.py",
    }


PLAIN = '''
    import json
    def g(x, *, rate=0.5):
        """Sum."""
        if x is None:
            raise ValueError(f"x: {x} is missing")
        total = 0
        for part in [value + rate for value in x]:
            total += part
        return total
    class C:
        """A class."""
        mu: Annotated[float, Field(ge=0, description="A weight.")] = 1.0
'''
METHODS = "\n    METHODS = {'one': 'fednoise_core.m:One'}"
SAME = {  # replace this by that in PLAIN
    "comment": ("total = 0", "total = 0  # so far"),
    "blank lines": ("    import json", "\n\n    import json\n"),
    "brackets": ("return total", "return (total)"),
    "docstring": ("Sum.", "The sum."),
    "error text": ("is missing", "is not there"),
    "description of a setting": ("A weight", "The weight"),
    "line of a registry": ("import json", "import json" + METHODS.replace("}", ", 'two': 'fednoise_core.m:Two'}")),
}
OTHER = {
    "number": ("total = 0", "total = 1"),
    "type of a number": ("total = 0", "total = 0.0"),
    "default": ("rate=0.5", "rate=0.25"),
    "sign": ("total += part", "total -= part"),
    "condition of an error": ("x is None", "not x"),
    "range of a setting": ("ge=0", "ge=1"),
    "type of a setting": ("Annotated[float", "Annotated[int"),
    "statement goes": ("        total = 0\n", ""),
    "further import": ("import json", "import json, math"),
    "local variable": ("total", "result"),
    "type of an error": ("ValueError", "KeyError"),
}


def hash_of(folder: Path, text: str) -> str:
    """The hash of a.py, which imports b.py with this text."""
    return closure_hash(write(folder, {**FILES, "fednoise_core/b.py": text}), "fednoise_core/a.py")


@pytest.mark.parametrize("edit", SAME)
def test_edits_without_effect_keep_the_hash(edit: str, tmp_path: Path) -> None:
    old, new = SAME[edit]
    assert old in PLAIN
    before = PLAIN.replace(old, old + METHODS if edit == "line of a registry" else old)
    assert hash_of(tmp_path / "b", before) == hash_of(tmp_path / "a", PLAIN.replace(old, new))


@pytest.mark.parametrize("edit", OTHER)
def test_edits_with_effect_change_the_hash(edit: str, tmp_path: Path) -> None:
    old, new = OTHER[edit]
    assert old in PLAIN
    assert hash_of(tmp_path / "b", PLAIN) != hash_of(tmp_path / "a", PLAIN.replace(old, new))


def test_files_that_are_not_imported_do_not_count(root: Path, tmp_path: Path) -> None:
    extended = write(tmp_path / "other", {**FILES, "fednoise_core/unused.py": "x = 2\n"})
    assert closure_hash(extended, "fednoise_core/a.py") == closure_hash(root, "fednoise_core/a.py")


def test_the_version_of_python_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = closure_hash(root, "fednoise_core/a.py")
    monkeypatch.setattr(code_hash.sys, "version_info", (3, 99))
    assert closure_hash(root, "fednoise_core/a.py") != before


def as_a_new_process(root: Path, *entries: str) -> str:
    code_hash._open_parser.cache_clear()
    return closure_hash(root, *entries)


def test_a_module_is_parsed_once_for_all_processes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = as_a_new_process(root, "fednoise_core/a.py")
    with monkeypatch.context() as patch:
        patch.setattr(code_hash, "_remove_uncounted", None)
        assert as_a_new_process(root, "fednoise_core/a.py") == before
    for damaged in ("{", ""):
        (root / code_hash.CACHE).write_text(damaged)
        assert as_a_new_process(root, "fednoise_core/a.py") == before


def test_a_folder_that_cannot_be_written_to_changes_nothing(root: Path) -> None:
    (root / "build").write_text("a file, so that none can be made below it")
    assert as_a_new_process(root, "fednoise_core/a.py") == as_a_new_process(root, "fednoise_core/a.py")


def test_an_edited_module_is_parsed_again(root: Path, tmp_path: Path) -> None:
    before = as_a_new_process(root, "fednoise_core/a.py")
    edit = {"fednoise_core/b.py": "def g(x):\n    return 2 * x\n"}
    after = as_a_new_process(write(root, edit), "fednoise_core/a.py")
    assert after != before
    assert after == as_a_new_process(write(tmp_path / "fresh", {**FILES, **edit}), "fednoise_core/a.py")


@pytest.mark.parametrize(
    ("start", "text", "file"),
    [
        ("fednoise_core/c.py", "from fednoise_core.far import thing\n", "fednoise_core/far/thing.py"),
        ("mine.py", "import helper\n", "helper.py"),  # the user's
        ("fednoise_core/c.py", "import helper\n", "helper.py"),  # a registered noise model that uses a file of the user
    ],
)
def test_a_name_that_became_a_module_is_seen(root: Path, start: str, text: str, file: str) -> None:
    before = as_a_new_process(write(root, {start: text}), start)
    assert as_a_new_process(write(root, {file: "x = 1\n"}), start) != before
    assert file in read_modules(root, [start])


def test_a_job_takes_the_code_that_it_was_planned_with() -> None:
    steps = StepCode(ROOT)
    entries = steps.step_entries("training_run", method=["fedavg"], net=["mlp"])
    planned = steps.hash_entries(entries)
    assert steps.check_hash(planned, entries) == steps.check_hash("", entries) == planned
    with pytest.raises(CodeChanged, match="the code has changed since this job was planned"):
        steps.check_hash("0" * 16, entries)


def test_imports_for_type_checkers_do_not_count(root: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fednoise_core import unused\n"
    (root / "fednoise_core/c.py").write_text(text)
    assert "fednoise_core/unused.py" not in read_modules(root, ["fednoise_core/c.py"])


def test_other_conditions_for_type_checkers_count(root: Path, tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    x = 1\n"
    (root / "fednoise_core/b.py").write_text(text)
    changed = write(tmp_path / "other", {**FILES, "fednoise_core/b.py": text.replace("= 1", "= 2")})
    assert closure_hash(changed, "fednoise_core/a.py") != closure_hash(root, "fednoise_core/a.py")


def test_two_modules_whose_contents_are_exchanged_count(root: Path, tmp_path: Path) -> None:
    files = {"fednoise_core/b.py": "def g(x):\n    return x\n", "fednoise_core/c.py": "def g(x):\n    return -x\n"}
    start = {"fednoise_core/a.py": "from fednoise_core import b, c\n"}
    swapped = dict(zip(files, reversed(files.values()), strict=True))
    hashes = [
        closure_hash(write(tmp_path / str(number), {**FILES, **start, **contents}), "fednoise_core/a.py")
        for number, contents in enumerate((files, swapped))
    ]
    assert hashes[0] != hashes[1]


def test_an_installed_library_beside_the_project_is_not_followed(root: Path) -> None:
    """With `pip install .` the root is the folder in which numpy and torch lie, too."""
    write(root, {"numpy/__init__.py": "x = 1\n", "fednoise_core/c.py": "import numpy\n"})
    assert "numpy/__init__.py" not in read_modules(root, ["fednoise_core/c.py"])


def test_a_relative_import_in_a_file_of_the_user_is_followed(root: Path) -> None:
    write(root, {"mine.py": "from . import helper\n", "helper.py": "x = 1\n"})
    assert set(read_modules(root, ["mine.py"])) == {"mine.py", "helper.py"}


def test_registry_and_modules(root: Path) -> None:
    assert read_registry(root, "fednoise_core/far/__init__.py", "LIST") == {"one": "fednoise_core.far.one:Thing"}
    assert module_file(root, "fednoise_core.far.one") == "fednoise_core/far/one.py"
    assert module_file(root, "fednoise_core.far") == "fednoise_core/far/__init__.py"
    assert module_file(root, "fednoise_core.none") is None
    with pytest.raises(LookupError, match="no dict literal named OTHER"):
        read_registry(root, "fednoise_core/far/__init__.py", "OTHER")


def test_hash_is_the_same_in_another_interpreter(root: Path) -> None:
    """Hash seeds and flags differ between processes; the value must not."""
    code = textwrap.dedent(
        f"""
        from workflow_scripts.provenance.code_hash import closure_hash
        print(closure_hash({str(root)!r}, "fednoise_core/a.py"))
        """
    )
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == closure_hash(root, "fednoise_core/a.py")


def test_steps_depend_on_their_own_kind_only() -> None:
    """A run is not stale when a noise model changes, nor are labels of one kind by the file of another."""
    project = Path(__file__).parents[2]
    steps = StepCode(project)
    training = set(read_modules(project, steps.step_entries("training_run", method=["fedcorr"], net=["small_cnn"])))
    needed = {"fednoise_core/noise/labels.py", "fednoise_core/methods/fedcorr.py", "fednoise_core/nets/small.py"}
    assert needed <= training
    others = {
        *(f"fednoise_core/noise/{name}.py" for name in ("registry", "models", "asymmetric", "levels")),
        *(f"fednoise_core/partition/{name}.py" for name in ("registry", "schemes", "skew")),
        "fednoise_core/methods/scaffold.py",
        "fednoise_core/nets/resnet.py",
    }
    assert all((project / name).is_file() for name in others)
    assert not training & others
    symmetric = set(read_modules(project, steps.step_entries("noise", noise=["symmetric"])))
    assert "fednoise_core/noise/models.py" in symmetric
    assert not symmetric & {"fednoise_core/noise/asymmetric.py", "fednoise_core/noise/levels.py"}
    openset = set(read_modules(project, steps.step_entries("partition", partition=["openset"])))
    assert "fednoise_core/partition/schemes.py" in openset
    assert "fednoise_core/partition/skew.py" not in openset


def test_a_further_line_of_a_registry_changes_no_other_hash(tmp_path: Path) -> None:
    """A new method must not make every result stale. A name with another class must make its own results stale."""
    table = "fednoise_core/methods/__init__.py"
    lines = {"one": "fednoise_core.methods.m:One", "two": "fednoise_core.methods.m:Two"}

    def code(folder: str, entries: dict[str, str], method: str) -> str:
        for name, text in {
            table: f"METHODS = {entries!r}\n",
            "workflow_scripts/steps/training_run.py": "import fednoise_core.methods\n",
            "fednoise_core/methods/m.py": "",
            "fednoise_core/nets/__init__.py": "NETS = {}\n",
            "fednoise_core/__init__.py": "",
        }.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(text)
        steps = StepCode(tmp_path / folder)
        return steps.hash_entries(steps.step_entries("training_run", method=[method]))

    before = code("before", lines, "one")
    assert code("more", {**lines, "three": "fednoise_core.methods.m:Three"}, "one") == before
    assert code("moved", {**lines, "one": "fednoise_core.methods.m:Two"}, "one") != before
    assert code("other", {**lines, "limit": "3"}, "one") != before


def test_the_command_line_around_training_is_not_in_its_hash() -> None:
    steps = StepCode(ROOT)
    training = read_modules(ROOT, steps.step_entries("training_run", method=["fedavg"], net=["mlp"]))
    assert "workflow_scripts/steps/training_run.py" in training
    commands = ("train", "device", "step", "codehash", "stepcode")
    assert not [name for name in commands if f"workflow_scripts/{name}.py" in training]
