"""pytest plugin of the contract suite, with its options and the fixtures of its tests.

    python -m pytest -p fednoise_core.testing.plugin --pyargs fednoise_core.testing --method mypackage.mymodule:MyMethod

`python -m fednoise_core.testing --method …` is the same. `-p` is needed because pytest reads the options of a
conftest.py only if the path of the conftest.py is an argument.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("fednoise_core.testing.test_contract")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the method under test and its settings."""
    group = parser.getgroup("fednoise_core", "contract of methods")
    group.addoption(
        "--method",
        action="append",
        default=[],
        metavar="NAME",
        help="the method under test: package.module:Class, or a registered name; may be given several times",
    )
    group.addoption(
        "--fields",
        action="append",
        default=[],
        metavar="JSON",
        help="settings of the method, such as '{\"mu\": 0.1}'; given several times, one for each --method in order",
    )
    group.addoption(
        "--train", default="{}", metavar="JSON", help="training settings that differ from the suite's (world.TRAIN)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Look up the methods under test before tests are collected, so that an error is one line."""
    asked = any("fednoise_core.testing" in str(arg) for arg in config.args)
    if (asked or config.getoption("--method")) and not config.getoption("help"):
        _list_subjects(config)  # before tests are collected, because later pytest also shows its own call stack


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that asks for a `subject` on every method under test."""
    if "subject" in metafunc.fixturenames:
        subjects = _list_subjects(metafunc.config)
        metafunc.parametrize("subject", subjects, ids=[subject.name for subject in subjects])


@functools.cache
def _list_subjects(config: pytest.Config) -> list[Any]:
    """List the methods under test. Raises UsageError if the options name none."""
    from fednoise_core.io import SpecError
    from fednoise_core.testing.subject import find_subject

    names = config.getoption("--method")
    fields = [_parse_mapping("--fields", text) for text in config.getoption("--fields")]
    if not names:
        raise pytest.UsageError("name the method under test: --method package.module:Class")
    if len(fields) > len(names):
        raise pytest.UsageError(f"--fields: given {len(fields)} times, but --method {len(names)} times")
    train = _parse_mapping("--train", config.getoption("--train"))
    try:
        return [find_subject(name, fields[k] if k < len(fields) else {}, train) for k, name in enumerate(names)]
    except (SpecError, TypeError) as error:
        raise pytest.UsageError(str(error)) from error


def _parse_mapping(option: str, text: str) -> dict[str, Any]:
    try:
        mapping = json.loads(text)
    except json.JSONDecodeError as error:
        raise pytest.UsageError(f"{option} {text!r}: no JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise pytest.UsageError(f'{option} {text!r}: expected a mapping such as {{"mu": 0.1}}')
    return mapping


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    """Make a whole run of each subject with its files and checkpoints, once.

    Returns:
        A function from a subject to its run.
    """
    done: dict[str, Any] = {}

    def of(subject: Any) -> Any:
        if subject.name not in done:
            folder: Path = tmp_path_factory.mktemp("method")
            done[subject.name] = subject.play_with_checkpoints(folder)
        return done[subject.name]

    return of


@pytest.fixture
def whole(subject: Any, recorded: Callable[[Any], Any]) -> Any:
    """The recorded run of the method under test."""
    return recorded(subject)
