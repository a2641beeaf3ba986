"""The code hash: blind to comments, sharp on code, and complete for what the steps import."""

from __future__ import annotations

import ast
import atexit
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from workflow_scripts import codehash
from workflow_scripts.codehash import closure, closure_hash, module_file, registry
from workflow_scripts.stepcode import StepCode

ROOT = Path(__file__).parents[1]
FILES = {
    "fednoise_core/__init__.py": "",
    "fednoise_core/a.py": "from fednoise_core import b\n\ndef f(x):\n    return b.g(x) + 1\n",
    "fednoise_core/b.py": "import json\n\ndef g(x):\n    return x\n",
    "fednoise_core/far/__init__.py": "LIST = {'one': 'fednoise_core.far.one:Thing'}\n",
    "fednoise_core/far/one.py": "from ..b import g\n",
    "fednoise_core/unused.py": "x = 1\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small project."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def hash_with(root: Path, tmp_path_factory: pytest.TempPathFactory, **files: str) -> str:
    """The hash of fednoise_core/a.py in a copy of the project with other files (a fresh folder: reading is cached)."""
    copy = tmp_path_factory.mktemp("copy")
    for name, text in {**FILES, **{f"fednoise_core/{key}.py": text for key, text in files.items()}}.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    return closure_hash(copy, "fednoise_core/a.py")


def test_closure_follows_imports_and_packages(root: Path) -> None:
    assert list(closure(root, "fednoise_core/a.py")) == [
        "fednoise_core/__init__.py",
        "fednoise_core/a.py",
        "fednoise_core/b.py",
    ]
    # a relative import, and the __init__.py of the package that importing runs
    assert set(closure(root, "fednoise_core/far/one.py")) >= {"fednoise_core/far/__init__.py", "fednoise_core/b.py"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a",
            '"""What it is."""\nfrom fednoise_core import b  # why\n\n\ndef f(x):\n    """Say."""\n    return b.g(x)+1',
        ),
        ("b", "import json\n\n# a comment\ndef g(x):\n    'doc'\n    return (x)\n"),
        ("b", "import json\r\n\r\ndef g(x):\r\n    return x\r\n"),
        ("unused", "x = 2\n"),
    ],
)
def test_hash_ignores_words_and_other_files(
    root: Path, tmp_path_factory: pytest.TempPathFactory, name: str, text: str
) -> None:
    assert hash_with(root, tmp_path_factory, **{name: text}) == closure_hash(root, "fednoise_core/a.py")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", "from fednoise_core import b\n\ndef f(x):\n    return b.g(x) + 2\n"),
        ("a", "from fednoise_core import b\n\ndef f(x):\n    return b.g(x) + 1.0\n"),
        ("b", "import json\n\ndef g(x=None):\n    return x\n"),
        ("b", "import json\n\ndef g(x):\n    return x\n\nNAME = 'text'\n"),
        ("__init__", "y = 3\n"),
    ],
)
def test_hash_sees_code(root: Path, tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    assert hash_with(root, tmp_path_factory, **{name: text}) != closure_hash(root, "fednoise_core/a.py")


def test_hash_ignores_the_sentence_of_a_setting_and_sees_its_range(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def hashed(told: str) -> str:
        return hash_with(root, tmp_path_factory, b=f"class C:\n    mu: Annotated[{told}] = 1.0\n")

    assert hashed("float, at_least(0), 'A weight.'") == hashed("float, at_least(0), 'A weight, ' 'in words.'")
    assert hashed("float, at_least(0), 'A weight.'") != hashed("float, at_least(1), 'A weight.'")
    assert hashed("float, at_least(0), 'A weight.'") != hashed("int, at_least(0), 'A weight.'")


def test_constants_of_other_type_differ(tmp_path_factory: pytest.TempPathFactory, root: Path) -> None:
    texts = ["X = None\n", "X = 0\n", "X = False\n", "X = ''\n", "X = b''\n", "X = ()\n", "X = []\n", "X = 0.0\n"]
    assert len({hash_with(root, tmp_path_factory, b=text) for text in texts}) == len(texts)


def test_imports_for_type_checkers_do_not_count(root: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fednoise_core import unused\n"
    (root / "fednoise_core/c.py").write_text(text)
    assert "fednoise_core/unused.py" not in closure(root, "fednoise_core/c.py")


def test_registry_and_modules(root: Path) -> None:
    assert registry(root, "fednoise_core/far/__init__.py", "LIST") == {"one": "fednoise_core.far.one:Thing"}
    assert module_file(root, "fednoise_core.far.one") == "fednoise_core/far/one.py"
    assert module_file(root, "fednoise_core.far") == "fednoise_core/far/__init__.py"
    assert module_file(root, "fednoise_core.none") is None
    with pytest.raises(LookupError, match="no dict literal named OTHER"):
        registry(root, "fednoise_core/far/__init__.py", "OTHER")


def test_hash_is_the_same_in_another_interpreter(root: Path) -> None:
    """Hash seeds and flags differ between processes; the value must not."""
    code = textwrap.dedent(
        f"""
        from workflow_scripts.codehash import closure_hash
        print(closure_hash({str(root)!r}, "fednoise_core/a.py"))
        """
    )
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == closure_hash(root, "fednoise_core/a.py")


def test_steps_depend_on_their_own_kind_only() -> None:
    """A run is not stale when a noise model changes, nor are labels of one kind by the file of another."""
    project = Path(__file__).parent.parent
    steps = StepCode(project)
    training = set(closure(project, *steps.train("fedcorr", ["small_cnn"])))
    own = {"fednoise_core/noise/labels.py", "fednoise_core/methods/fedcorr.py", "fednoise_core/nets/small.py"}
    assert own <= training
    others = {
        *(f"fednoise_core/noise/{name}.py" for name in ("registry", "models", "asymmetric", "levels", "nominal")),
        *(f"fednoise_core/partition/{name}.py" for name in ("registry", "schemes", "by_class", "skew")),
        "fednoise_core/methods/scaffold.py",
        "fednoise_core/nets/resnet.py",
    }
    assert all((project / name).is_file() for name in others)
    assert not training & others
    symmetric = set(closure(project, *steps.noise("symmetric")))
    assert "fednoise_core/noise/models.py" in symmetric
    assert not symmetric & {"fednoise_core/noise/asymmetric.py", "fednoise_core/noise/levels.py"}
    openset = set(closure(project, *steps.partition("openset")))
    assert "fednoise_core/partition/schemes.py" in openset
    assert "fednoise_core/partition/skew.py" not in openset


def test_a_further_line_of_a_registry_changes_no_other_hash(tmp_path: Path) -> None:
    """Adding a method must not make every result stale; pointing a name elsewhere must make its own."""
    table = "fednoise_core/methods/__init__.py"
    lines = {"one": "fednoise_core.methods.m:One", "two": "fednoise_core.methods.m:Two"}

    def code(folder: str, known: dict[str, str], method: str) -> str:
        for name, text in {
            table: f"METHODS = {known!r}\n",
            "workflow_scripts/training.py": "import fednoise_core.methods\n",
            "fednoise_core/methods/m.py": "",
            "fednoise_core/nets/__init__.py": "NETS = {}\n",
            "fednoise_core/__init__.py": "",
        }.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(text)
        steps = StepCode(tmp_path / folder)
        return steps.code(steps.train(method, []))

    before = code("before", lines, "one")
    assert code("more", {**lines, "three": "fednoise_core.methods.m:Three"}, "one") == before
    assert code("moved", {**lines, "one": "fednoise_core.methods.m:Two"}, "one") != before
    assert code("other", {**lines, "limit": "3"}, "one") != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('__version__ = "0.1.0"\nx = 1\n', '__version__ = "0.2.0"\nx = 1\n'),
        ('__all__ = ["f"]\nx = 1\n', '__all__ = ["f", "g"]  # noqa\nx = 1\n'),
        ("parser.add_argument('--a', help='one')\n", "parser.add_argument('--a', help='another')\n"),
        ("X: dict[str, str]\nREADERS = {'a': 'b'}\n", "X: dict[str, str]\nREADERS = {'a': 'b', 'c': 'd'}\n"),
    ],
)
def test_words_and_lists_that_decide_no_number_do_not_count(
    root: Path, tmp_path_factory: pytest.TempPathFactory, one: str, other: str
) -> None:
    assert hash_with(root, tmp_path_factory, b=one) == hash_with(root, tmp_path_factory, b=other)
    changed = other.replace("x = 1", "x = 2").replace("'--a'", "'--b'").replace("X: dict", "Y: dict")
    assert hash_with(root, tmp_path_factory, b=one) != hash_with(root, tmp_path_factory, b=changed)


def test_a_help_that_is_worked_out_counts(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    texts = ["f(help=next(it))\n", "f(help=first(it))\n"]
    assert len({hash_with(root, tmp_path_factory, b=text) for text in texts}) == 2


def test_f_strings_are_the_same_however_python_cuts_them() -> None:
    """Python 3.12.1 leaves neighbouring texts apart, and empty ones in."""
    name = ast.Name("x", ast.Load())
    value = ast.FormattedValue(name, -1, None)
    whole = [ast.Constant("a=1 "), value, ast.Constant("b")]
    apart = [ast.Constant("a="), ast.Constant("1 "), ast.Constant(""), value, ast.Constant("b"), ast.Constant("")]
    bare = ast.FormattedValue(name, -1, ast.JoinedStr([ast.Constant("")]))
    found = [
        codehash._words(ast.JoinedStr(parts), [])
        for parts in (whole, apart, [whole[0], bare, whole[2]], [ast.Constant("a=1 b"), value])
    ]
    assert found[0] == found[1] == found[2] != found[3]


def test_the_command_line_around_training_is_not_in_its_hash() -> None:
    steps = StepCode(ROOT)
    training = closure(ROOT, *steps.train("fedavg", ["mlp"]))
    assert "workflow_scripts/training.py" in training
    commands = ("train", "training_jobs", "device", "step", "codehash", "own_code", "stepcode")
    assert not [name for name in commands if f"workflow_scripts/{name}.py" in training]


def test_a_further_reader_changes_no_other_download(tmp_path: Path) -> None:
    def code(folder: str, readers: dict[str, str]) -> str:
        for name, text in {
            "fednoise_core/__init__.py": "",
            "fednoise_core/data/__init__.py": "",
            "fednoise_core/data/sources.py": f"READERS: dict[str, str] = {readers!r}\n",
            "fednoise_core/data/a.py": "",
            "fednoise_core/data/b.py": "x = 1\n",
            "workflow_scripts/__init__.py": "",
            "workflow_scripts/download.py": "from fednoise_core.data import sources\n",
        }.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(text)
        steps = StepCode(tmp_path / folder)
        return steps.code(steps.download({"source": "one"}))

    before = code("before", {"one": "a"})
    assert code("more", {"one": "a", "two": "b"}) == before
    assert code("moved", {"one": "b", "two": "b"}) != before


def test_weights_depend_on_their_net() -> None:
    steps = StepCode(ROOT)
    assert "fednoise_core/nets/resnet.py" in closure(ROOT, *steps.pretrained("resnet50"))


def test_nothing_is_imported_by_star() -> None:
    """Else `__all__` would decide what a module sees, and would have to count."""
    for package in ("fednoise_core", "workflow_scripts"):
        for path in (ROOT / package).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_bytes()))
            assert not [n for n in nodes if isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names)], path


@pytest.fixture
def remembering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """A folder whose code hash is asked for as by one process after another."""
    (tmp_path / "workflow_scripts").mkdir()
    (tmp_path / "fednoise_core").mkdir()
    (tmp_path / "workflow_scripts/a.py").write_text("from fednoise_core import b\n")
    (tmp_path / "fednoise_core/b.py").write_text("X = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def ask() -> str:
        codehash._parsed.cache_clear()
        codehash._kept.cache_clear()
        value = closure_hash(tmp_path, "workflow_scripts/a.py")
        kept = codehash._kept(tmp_path.resolve())
        kept.write()
        atexit.unregister(kept.write)
        return value

    return ask


def kept_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "workflow_scripts/__pycache__").glob("codehash.*.json")
    return path


def test_what_is_kept_gives_the_same_hash_and_an_edit_another(remembering, tmp_path, monkeypatch) -> None:
    first = remembering()
    assert len(json.loads(kept_file(tmp_path).read_text())) == 2
    with monkeypatch.context() as patch:
        patch.setattr(codehash, "_analysed", lambda *_: pytest.fail("read again"))
        assert remembering() == first
    (tmp_path / "fednoise_core/b.py").write_text("X = 2\n")
    second = remembering()
    assert second != first
    (tmp_path / "fednoise_core/b.py").write_text("X = 1  # a comment\n")
    assert remembering() == first


@pytest.mark.parametrize("entry", [None, ["x"], [None, [1]], ["ab", "cd"], ["ab", []], {"a": 1}, ["0" * 64, [1]]])
def test_a_damaged_entry_is_not_believed(entry, remembering, tmp_path) -> None:
    first = remembering()
    path = kept_file(tmp_path)
    path.write_text(json.dumps({key: entry for key in json.loads(path.read_text())}))
    assert remembering() == first
    path.write_text("[" * 100_000)
    assert remembering() == first
    path.write_text("3")
    assert remembering() == first
    assert len(json.loads(path.read_text())) == 2
