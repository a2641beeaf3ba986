"""The contract suite on classes outside the package, in a process of its own."""

import os
import re
import subprocess
import sys
import unittest.mock
from pathlib import Path
from typing import Any

import pytest

from fednoise_core.methods import METHODS
from fednoise_core.testing.plugin import _list_subjects

HERE = Path(__file__).parents[1] / "support"
SUITE = ["-m", "pytest", "-p", "fednoise_core.testing.plugin", "--pyargs", "fednoise_core.testing"]


def suite(folder: Path, *arguments: str, start: list[str] = SUITE) -> subprocess.CompletedProcess[str]:
    """Run the suite as a user does: in a folder without a pytest configuration."""
    for file in ("contract_methods.py", "broken_methods.py"):
        (folder / file).write_bytes((HERE / file).read_bytes())
    paths = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, *start, "-q", "--tb=short", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "PYTHONPATH": paths}
    env.pop("PYTEST_ADDOPTS", None)  # meant for the tests that call this
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)


def test_a_method_that_keeps_the_contract_passes(tmp_path: Path) -> None:
    options = ["--method", "contract_methods:Pulled", "--fields", '{"mu": 0.1}']
    result = suite(tmp_path, *options, start=["-m", "fednoise_core.testing"])
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"^(\d+) passed", result.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) >= 19  # nothing is skipped
    assert "skipped" not in result.stdout


BROKEN = {
    "ChangesInPlace": (
        "test_it_runs_to_its_end_and_its_models_predict",
        "state['seen'] was changed in place",
    ),
    "DrawsGlobally": (
        "test_global_random_generators_are_neither_used_nor_changed",
        "broken_methods:DrawsGlobally uses torch's global random generator: draw from client.random_stream(words)",
    ),
    "Peeks": ("test_it_runs_to_its_end_and_its_models_predict", "WireError: "),
    "ReachesInside": ("test_its_source_keeps_out_of_private_parts", "fed.world"),
    "SaysMore": (
        "test_what_crosses_is_what_it_declares",
        "update 'samples' crossed in round 1 and is not declared\n"
        "declared, perhaps by a base: {'broadcast': ('model',), 'update': ('model',)}\n"
        'this run: wire: ClassVar = {"broadcast": ("model",), "update": ("model", "samples")}',
    ),
    "TellsLabels": ("test_no_client_tells_its_labels", ": update 'told'"),
    "LosesCount": ("test_it_resumes_bit_exactly_after_every_round", "resumed after round 1, it ends in another state"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    options = [word for name in BROKEN for word in ("--method", f"broken_methods:{name}")]
    tests = "runs_to or resumes or global or source or declares or tells"
    result = suite(tmp_path_factory.mktemp("broken"), *options, "-k", tests)
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", BROKEN)
def test_each_breach_is_named(broken: str, name: str) -> None:
    test, message = BROKEN[name]
    heading = f"{test}[broken_methods:{name}]"
    part = re.search(rf"^_+ (ERROR at setup of )?{re.escape(heading)} _+$(.*?)^(_{{5}}|={{5}})", broken, re.M | re.S)
    assert part is not None, broken
    assert message in part[2]


@pytest.mark.parametrize("name", ["DrawsGlobally", "LosesCount"])
def test_a_method_fails_only_where_it_breaks_the_contract(broken: str, name: str) -> None:
    assert f"test_it_runs_to_its_end_and_its_models_predict[broken_methods:{name}]" not in broken


class Given:
    """The options of pytest that the suite reads."""

    def __init__(self, arguments: list[str]):
        pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
        self.given = {key: [value for name, value in pairs if name == key] for key in ("--method", "--fields")}
        self.train = dict(pairs).get("--train", "{}")

    def getoption(self, name: str) -> Any:
        return self.train if name == "--train" else self.given[name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the method under test: --method package.module:Class"),
        (["--method", "fedavgg"], "method.name: unknown method 'fedavgg'; did you mean 'fedavg'?"),
        (["--method", "nowhere:It"], "method.name: 'nowhere:It': ModuleNotFoundError: No module named 'nowhere'"),
        (["--method", "broken_methods:Missing"], "has no attribute 'Missing'"),
        (["--method", "broken_methods:NO_METHOD"], "'broken_methods:NO_METHOD' is not a subclass of fednoise_core"),
        (["--method", "fedavg", "--fields", "mu"], "--fields 'mu': no JSON"),
        (["--method", "fedavg", "--fields", "[1]"], "--fields '[1]': expected a mapping"),
        (["--method", "fedavg", "--fields", "{}", "--fields", "{}"], "--fields: given 2 times, but --method 1 times"),
        (["--method", "fedprox", "--fields", '{"my": 1}'], "my: unknown key; did you mean 'mu'?"),
        (["--method", "fedavg", "--train", '{"rouns": 1}'], "train.rouns: unknown key; did you mean 'rounds'?"),
    ],
)
def test_wrong_options_are_one_clear_error(arguments: list[str], message: str) -> None:
    with unittest.mock.patch.dict(METHODS), pytest.raises(pytest.UsageError, match=re.escape(message)):
        _list_subjects(Given(arguments))


def test_pytest_shows_it_as_one_error(tmp_path: Path) -> None:
    result = suite(tmp_path, "--method", "fedavg", "--fields", "mu")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--fields 'mu': no JSON" in result.stdout + result.stderr
    assert "_subjects" not in result.stdout + result.stderr


def test_the_world_needs_no_pytest() -> None:
    modules = "subject, wire, world"
    code = f"import sys; sys.modules['pytest'] = None; from fednoise_core.testing import {modules}; print('fine')"
    result = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=False)
    assert result.stdout == "fine\n", result.stderr
