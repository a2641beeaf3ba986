"""The code on docs/add_a_noise_model.md and docs/add_a_partition.md runs as it stands."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np

from fednoise_core.noise import registry
from fednoise_core.noise.labels import Labels
from fednoise_core.partition import registry as partitions
from fednoise_core.settings.declare import settings_of
from fednoise_core.settings.functions import resolve_kind

PAGE = Path(__file__).parents[2] / "docs" / "add_a_noise_model.md"


def test_the_page_s_code_runs(monkeypatch, capsys) -> None:
    monkeypatch.setattr(registry, "NOISES", dict(registry.NOISES))  # the page registers its model: only here
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    labels = names["labels"]
    assert isinstance(labels, Labels)
    # classes 0..8 have rates .1 + .4·i/9, class 9 becomes itself: (.1·9 + .4·36/9) / 10 = .25
    assert abs(labels.rate - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 1000)
    assert set(labels.noisy[labels.wrong].tolist()) == {9}
    assert "of the labels are wrong" in capsys.readouterr().out


def test_the_page_names_every_input() -> None:
    text = PAGE.read_text(encoding="utf-8")
    functions = [resolve_kind({"kind": kind}, registry.NOISES, "noise") for kind in registry.NOISES]
    inputs = {name for one in functions for name in inspect.signature(one).parameters.keys() - settings_of(one).keys()}
    assert all(f"`{name}`" in text for name in inputs - {"y", "K", "rng"})


def test_the_partition_page_s_code_runs(monkeypatch) -> None:
    monkeypatch.setattr(partitions, "PARTITIONS", dict(partitions.PARTITIONS))
    page = PAGE.with_name("add_a_partition.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    parts = [names["partition"].of(c) for c in range(4)]
    assert [sum(np.diff(part) > 1) <= 1 for part in parts] == [True] * 4  # two blocks of 125 neighbours
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(1000))
    functions = [resolve_kind({"kind": kind}, partitions.PARTITIONS, "partition") for kind in partitions.PARTITIONS]
    inputs = {name for one in functions for name in inspect.signature(one).parameters.keys() - settings_of(one).keys()}
    assert all(f"`{name}`" in page for name in inputs - {"C", "rng"})
