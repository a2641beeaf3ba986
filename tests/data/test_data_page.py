"""The code on docs/add_a_dataset.md runs as it stands."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import yaml

import fednoise_core
from fednoise_core.data import SOURCES, sources
from workflow_scripts.config.validation import Schemas
from workflow_scripts.config.yaml_file import ConfigPath

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "add_a_dataset.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_example_of_own_arrays_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(blocks("python")[1], str(PAGE), "exec"), names)
    data, labels = names["data"], names["labels"]
    assert (data.n, data.classes, data.names[0]) == (500, 3, "dark")
    np.testing.assert_array_equal(labels.noisy, names["collected"])
    assert abs(labels.rate - 0.2 * 2 / 3) < 5 * np.sqrt(0.2 * 0.8 / 500)
    assert "500 images, " in capsys.readouterr().out
    (lines,) = blocks("yaml")
    specs = yaml.safe_load(lines)
    for spec in specs.values():
        Schemas(ROOT / "config/schema").check_kind("dataset", spec, ConfigPath("page"))
    assert sources.read_facts(specs["shapes"])[0] == 500


def test_the_module_of_a_new_source_works(monkeypatch):
    module = types.ModuleType("fednoise_core.data.wedges")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(blocks("python")[0], str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(SOURCES, "wedges", "fednoise_core.data.wedges:Wedges")
    spec = {"source": "wedges", "samples": 200, "public": 40, "subset": {"test": 20}}
    data = fednoise_core.dataset(spec)
    assert (data.n, len(data.x_public), len(data.y_test)) == (160, 40, 20)
    assert sources.read_facts(spec) == (160, 4, (8, 8))
    assert sources.list_files(spec) == []
    corners = np.stack([data.x_train[:, r : r + 4, c : c + 4].mean((1, 2)) for r in (0, 4) for c in (0, 4)], axis=1)
    np.testing.assert_array_equal(corners.argmax(1), data.y_train)


def test_the_page_names_every_common_setting():
    text = PAGE.read_text(encoding="utf-8")
    for name in Schemas(ROOT / "config/schema").load("dataset")["svhn"]["properties"]:
        assert f"`{name}" in text, name
