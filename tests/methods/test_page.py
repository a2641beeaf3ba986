"""What each method's page says in its front matter is what its class and its runs say; lines of code."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import methods_page
import pytest
from cases import MODEL, traffic

from fednoise_core.methods import METHODS, method_class
from fednoise_core.report.code_lines import code_lines, method_lines

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_passes_are_those_of_the_code(name: str) -> None:
    assert methods_page.facts(name)["passes"] == method_class(name).passes


@every_method
def test_what_crosses_and_stays_is_what_a_run_shows(name: str, played) -> None:
    """On the toy world: bytes of FedAvg where the page says "the model" and nothing else, and things that clients keep
    unless it says "nothing". (Its net has no normalisation layers, so that FedBN sends what FedAvg does.)
    """
    made, row = played(name).run, methods_page.facts(name)
    sends_the_model = traffic(name, made) == [(0, 0)] + [(4 * MODEL, 4 * MODEL)] * 3
    assert sends_the_model == (row["crosses"] == "the model" or name == "fedbn")
    assert any(made.outcome.state.clients.values()) == (row["keeps"] != "nothing")


SOURCE = '''"""What it is,
in two lines."""

import os  # a comment beside code counts as code

# a comment


class Mine:
    """Docstring."""

    text = """two
lines"""


@property
class Other:
    pass
'''


def test_lines_of_code() -> None:
    assert code_lines(SOURCE) == 7
    assert code_lines(SOURCE, frozenset({"Other"})) == 4
    assert code_lines("") == 0


def test_methods_of_one_file_are_counted_apart() -> None:
    """Together they have more lines than the file, as each has the imports; alone each has fewer."""
    spec = find_spec("fednoise_core.methods.robust_losses")
    assert spec is not None
    assert spec.origin is not None
    whole = code_lines(Path(spec.origin).read_text(encoding="utf-8"))
    each = [method_lines(name) for name in ("sce", "gce", "mae")]
    assert max(each) < whole < sum(each)
    assert method_lines("no_such_method") is None
