"""Settings in words: short, readable, and different wherever the settings differ."""

import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runs import NOISES, PARTITIONS, write_study

from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.report.runs import names, noise_rate
from workflow_scripts.report.runs.run import listed_runs, load
from workflow_scripts.report.runs.settings import artifacts_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"kind": "none"}, "no noise"),
        ({"kind": "symmetric", "rate": 0.4, "sampling": "iid"}, "40 % of labels wrong"),
        ({"kind": "symmetric", "rate": 0.4, "inclusive": True}, "40 % of labels drawn anew"),
        (
            {"kind": "asymmetric", "rate": 0.2, "sparsity": 0.8, "noise_seed": 42},
            "20 % of labels wrong, asymmetric, sparsity 0.8",
        ),
        ({"kind": "human", "labels": "worst"}, "people’s labels (worst)"),
        (
            {"kind": "openset", "clients": 100, "mode": "uniform", "q": 0.5, "labels": "noisy"},
            "clients lack classes (equal shares)",
        ),
        (
            {"kind": "openset", "clients": 100, "mode": "uniform", "q": 0.3},
            "clients lack classes (equal shares), q = 0.3",
        ),
        ({"kind": "dirichlet", "alpha": 0.1, "clients": 10}, "classes shared unevenly (Dirichlet), α = 0.1"),
        ({"kind": "random", "rate": 0.4, "diag": "printed"}, "40 % of labels kept, mix-ups vary by class"),
        ({"kind": "random_draws", "clients": 4, "size": 99, "overlap": False}, "99 images a client, no overlap"),
        ({"kind": "random_draws", "clients": 4, "size": 10000}, "10,000 images a client"),
        ({"kind": "classes_per_client", "clients": 4, "n": 3, "mode": "fedlsr"}, "3 classes a client"),
        ({"kind": "classes_per_client", "n": 3, "mode": "shards"}, "3 shards a client"),
        ({"kind": "classes_per_client", "n": 3, "mode": "disjoint_classes"}, "3 evenly dealt classes a client"),
        (
            {"kind": "bernoulli_dirichlet", "p": 0.5, "alpha": 1.0},
            "clients lack classes (Bernoulli–Dirichlet), p = 0.5, α = 1",
        ),
        ({"kind": "openset", "clients": 100, "mode": "nonuniform"}, "clients lack classes (unequal shares)"),
        ({"kind": "fedcorr", "rho": 0.6, "tau": 0.5}, "FedCorr noise, 0.6 of clients noisy, levels from 0.5"),
        (
            {"kind": "localized", "low": 0.2, "high": 0.6, "flip": "pair"},
            "noise differs by client (pair), rates 0.2 to 0.6",
        ),
        (
            {"kind": "fednoro", "rho": 0.6, "lower": 0.3, "upper": 0.7},
            "FedNoRo noise, 0.6 of clients noisy, levels 0.3 to 0.7",
        ),
        ({"kind": "pair", "rate": 0.3, "offset": -1}, "30 % of labels wrong, in pairs, to the class before"),
        ({"source": "cifar10", "subset": {"train": 6000, "test": 1000}, "mean": [0.5]}, "CIFAR-10, 6,000 images"),
        ({"source": "cifar100", "human": True, "labels": "coarse"}, "CIFAR-100N coarse"),
        ({"source": "cifar100", "labels": "coarse"}, "CIFAR-100 coarse"),
        ({"source": "npz", "path": "mine.npz"}, "its-id"),
        ({"kind": "iid", "label": "all alike"}, "all alike"),
        ({}, "its-id"),
    ],
)
def test_a_spec_in_words(spec: dict[str, Any], text: str) -> None:
    assert names.describe_spec(spec, "its-id") == text


def test_a_default_is_named_where_others_differ_from_it() -> None:
    kind = {"kind": "bernoulli_dirichlet", "clients": 100}
    specs = {"alike": kind | {"alpha": 100, "p": 0.5}, "usual": kind | {"p": 0.5}, "other": kind | {"p": 0.2}}
    descriptions = names.disambiguate_specs(specs)
    assert [descriptions[name].removeprefix("clients lack classes (Bernoulli–Dirichlet), ") for name in specs] == [
        "α = 100, p = 0.5",
        "α = 10, p = 0.5",
        "α = 10, p = 0.2",
    ]
    alone = names.disambiguate_specs({"usual": specs["usual"]})
    assert alone["usual"] == "clients lack classes (Bernoulli–Dirichlet), p = 0.5"
    images = {"raw": {"kind": "instance", "rate": 0.4}, "unit": {"kind": "instance", "rate": 0.4, "scale": "unit"}}
    assert list(names.disambiguate_specs(images).values()) == [
        "40 % of labels wrong, by image, pixels from 0 to 255",
        "40 % of labels wrong, by image, pixels from 0 to 1",
    ]


def test_equal_descriptions_name_the_settings_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NOISES, "sym40-seed42", {"kind": "symmetric", "rate": 0.4, "noise_seed": 42})
    monkeypatch.setitem(PARTITIONS, "iid10", {"kind": "iid", "clients": 10})
    grid = [{"noises": ["sym40", "sym40-seed42"], "partitions": ["iid", "iid10"], "methods": ["fedavg"]}]
    write_study(tmp_path, grid=grid, rounds=3, seeds=(0,))
    runs = load(listed_runs(tmp_path / "runs.json"))
    setting_names = names.Names.of_runs(runs)
    titles = {setting_names.title(run.listed.setting) for run in runs}
    assert titles == {
        f"{noise} · classes spread evenly, {clients} clients"
        for noise in ("40 % of labels wrong", "40 % of labels wrong, noise seed 42")
        for clients in (10, 20)
    }
    assert setting_names.common(runs[0].listed.setting) == "digits"
    artifacts = artifacts_of([run.listed for run in runs])  # headings of pictures, from the artifacts alone
    assert {" · ".join(setting.words) for setting in artifacts} == {f"digits · {title}" for title in titles}


def some_value(draw: random.Random, schema: dict[str, Any]) -> Any:
    """A value that a schema allows, out of few, so that settings often share it."""
    if "anyOf" in schema:
        return some_value(draw, draw.choice(schema["anyOf"]))
    if "enum" in schema:
        return draw.choice(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    values = {"boolean": [False, True], "integer": [1, 2], "number": [0.25, 0.5], "string": ["a", "b"], "null": [None]}
    return draw.choice([value for kind in kinds for value in values.get(kind, [[], [[0.5]]])])


@pytest.mark.parametrize("seed", range(200))
def test_two_settings_never_share_a_heading(seed: int) -> None:
    """Noises and partitions are of at most two kinds, and differ in few settings or in none."""
    draw = random.Random(seed)
    parts: dict[str, dict[str, dict[str, Any]]] = {"dataset": {"d": {}, "e": {"source": "d"}}}
    for family in ("noise", "partition"):
        schema = read_yaml(ROOT / f"config/schema/{family}.yaml")
        kinds = draw.sample(sorted(schema), 2)
        parts[family] = {}
        for number in range(12):
            kind = draw.choice(kinds)
            properties = schema[kind]["properties"].items()
            spec = {key: some_value(draw, entry) for key, entry in properties if draw.random() < 0.4}
            parts[family][f"id-{number}"] = {"kind": kind, **spec}
    settings = list(itertools.product(*parts.values()))
    named = names.Names(
        (ids, {family: specs[part] for part, (family, specs) in zip(ids, parts.items(), strict=True)})
        for ids in draw.sample(settings, 100)
    )
    chosen = [ids for ids in settings if all(part in used for part, used in zip(ids, named.parts, strict=True))]
    assert len({named.title(ids) for ids in chosen}) == len(chosen)
    for family in ("noise", "partition"):
        for pair in itertools.combinations(parts[family], 2):  # the descriptions of any two differ, too
            assert len(set(names.disambiguate_specs({name: parts[family][name] for name in pair}).values())) == 2


@pytest.mark.parametrize(
    ("field", "text"),
    [("train.batch", "batch size"), ("train.momentum", "momentum"), ("alpha", "α"), ("forget_rate", "forget rate")],
)
def test_a_swept_setting_in_words(field: str, text: str) -> None:
    assert names.field_words(field) == text


def test_a_rate_is_no_difference_between_curves_over_the_rate() -> None:
    specs = {
        "a": {"kind": "random", "rate": 0.2},
        "b": {"kind": "random", "rate": 0.4},
        "c": {"kind": "random", "rate": 0.4, "diag": "printed"},
        "d": {"kind": "fedcorr", "rho": 0.2, "tau": 0.5},
        "e": {"kind": "fedcorr", "rho": 0.4, "tau": 0.5},
    }
    assert names.label_without_rate(specs) == {
        "a": "labels wrong, mix-ups vary by class",
        "b": "labels wrong, mix-ups vary by class",
        "c": "labels kept, mix-ups vary by class",
        "d": "FedCorr noise",
        "e": "FedCorr noise",
    }


@pytest.mark.parametrize(
    ("noise", "rate"),
    [
        ({"kind": "symmetric", "rate": 0.4}, 0.4),  # nominal, not the realised one
        ({"kind": "none"}, 0),
        ({"kind": "human", "labels": "worst"}, 0.004),  # as realised: people were asked for no rate
        ({"kind": "semantic", "rate": 0.4}, 0.2),  # five of ten classes are flipped
        ({"kind": "symmetric", "rate": 0.4, "inclusive": True}, 0.36),
        ({"kind": "random", "rate": 0.8, "diag": "printed"}, 0.2),
        ({"kind": "fedcorr", "rho": 0.5, "tau": 0.5}, 0.3375),
        ({"kind": "matrix", "rows": [[0.9, 0.1], [0.3, 0.7]]}, 0.2),
    ],
)
def test_the_rate_is_the_share_of_wrong_labels_that_the_noise_stands_for(noise: dict[str, Any], rate: float) -> None:
    run: Any = SimpleNamespace(spec={"noise": noise}, summary={"classes": 10, "diagnostics": {"noise_rate": 0.004}})
    assert noise_rate.noise_rate(run) == pytest.approx(rate)


def test_noise_that_changes_nothing_is_noiseless_at_any_rate() -> None:
    quiet = [{"kind": "none"}, {"kind": "pair", "rate": 0}, {"kind": "fedcorr", "rho": 0.0, "tau": 0.5}]
    assert all(noise_rate.is_noiseless(spec) for spec in [*quiet, {"kind": "random", "rate": 1.0, "diag": "printed"}])
    assert not noise_rate.is_noiseless({"kind": "random", "rate": 0.0, "diag": "printed"})  # keeps no label
    assert not noise_rate.is_noiseless({})
