"""The code on docs/add_a_noise_model.md and docs/add_a_partition.md runs as it stands."""

import inspect
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from fednoise_core.data.partition import Partition
from fednoise_core.noise import registry
from fednoise_core.noise.labels import Labels
from fednoise_core.partition import registry as partitions
from fednoise_core.settings.declare import settings_of
from fednoise_core.settings.functions import resolve_kind

PAGE = Path(__file__).parents[2] / "docs" / "add_a_noise_model.md"


def run_page(page: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Import the page's module under a name, and run the page's other code."""
    module_code, *trials = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(module_code, str(page), "exec"), module.__dict__)
    names: dict[str, object] = {}
    exec(compile("".join(trials), str(page), "exec"), names)
    return names


def test_the_page_s_code_runs(monkeypatch, capsys) -> None:
    labels = run_page(PAGE, "background", monkeypatch)["labels"]
    assert isinstance(labels, Labels)
    # classes 0..8 have rates .1 + .4·i/9, class 9 becomes itself
    rates = np.where(labels.clean < 9, 0.1 + 0.4 * labels.clean / 9, 0)
    assert abs(labels.rate - rates.mean()) < 5 * np.sqrt(0.25 * 0.75 / len(rates))
    assert set(labels.noisy[labels.wrong].tolist()) == {9}
    assert "of the labels are wrong" in capsys.readouterr().out


def test_the_page_names_every_input() -> None:
    text = PAGE.read_text(encoding="utf-8")
    functions = [resolve_kind({"kind": kind}, registry.NOISES, "noise") for kind in registry.NOISES]
    inputs = {name for f in functions for name in inspect.signature(f).parameters.keys() - settings_of(f).keys()}
    assert all(f"`{name}`" in text for name in inputs - {"y", "K", "rng"})


def test_the_partition_page_s_code_runs(monkeypatch) -> None:
    page = PAGE.with_name("add_a_partition.md")
    partition = run_page(page, "blocks", monkeypatch)["partition"]
    assert isinstance(partition, Partition)
    parts = [partition.of(c) for c in range(4)]
    assert [sum(np.diff(part) > 1) <= 1 for part in parts] == [True] * 4  # two blocks of neighbours
    assert np.ptp([len(part) for part in parts]) <= 2
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(1187))
    functions = [resolve_kind({"kind": kind}, partitions.PARTITIONS, "partition") for kind in partitions.PARTITIONS]
    inputs = {name for f in functions for name in inspect.signature(f).parameters.keys() - settings_of(f).keys()}
    assert all(f"`{name}`" in page.read_text(encoding="utf-8") for name in inputs - {"C", "rng"})
