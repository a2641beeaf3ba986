"""The benchmarks run. Their measurements are not checked."""

import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import benchmarks
from benchmarks import label_errors, planted_errors

ROOT = Path(__file__).parents[2]


MODULES = {module.name for module in pkgutil.iter_modules(benchmarks.__path__)}
ELSEWHERE = {"__main__"}  # it runs when it is imported


@pytest.mark.parametrize("name", sorted(MODULES - ELSEWHERE))
def test_every_benchmark_finds_what_it_imports(name):
    importlib.import_module(f"benchmarks.{name}")


def test_planted_errors_change_one_line_and_are_restored(tmp_path):
    file = tmp_path / "fednoise_core/noise/model.py"
    file.parent.mkdir(parents=True)
    file.write_text("def f(x):\n    if x > 1:\n        return x + 2\n    return x\n")
    rows = list(planted_errors.find_errors(tmp_path, "noise"))
    assert {row["planted"] for row in rows} == {"if x >= 1:", "if x > 2:", "return x - 2", "return x + 3"}
    before = planted_errors.plant(file, rows[0])
    assert rows[0]["planted"] in file.read_text()
    assert len(set(file.read_text().splitlines()) - set(before.splitlines())) == 1


def test_corrupted_sites_have_about_as_many_wrong_labels_as_asked_for():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, 1000)
    x = draw.integers(0, 60, (1000, 28, 28), dtype=np.uint8)
    looks = np.array(label_errors.LOOKS["mnist"])
    annotator = label_errors.Ridge(alpha=5).fit(label_errors.flatten_images(x[:150]), np.eye(10)[y[:150]])
    for kind in label_errors.KINDS:
        images, clean, labels = label_errors.corrupt_site(kind, x, y, 0.2, draw, looks, annotator)
        assert np.mean(labels != clean) == pytest.approx(0.2, abs=0.03), kind
        assert (images.shape, clean.shape) == (x.shape, y.shape)
