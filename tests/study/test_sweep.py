"""`sweep` in a method's definition: the variants that it stands for. A mistake is one message with file and key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednoise_core.io import SpecError
from fednoise_core.settings.variants import (
    base_method,
    format_settings,
    parse_settings,
    strip_settings,
    swept_field,
    variant_id,
)
from workflow_scripts.config.project import Project
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
CONFIG = {"device": "cpu", "scale": "paper", "studies": ["toy"], "data_root": None, "overlay": {}}
STUDY: dict[str, Any] = {
    "title": "Toy",
    "partitions": {
        "held": {"kind": "iid", "clients": 5, "validation": 0.2},
    },
    "methods": {
        "prox": {"name": "fedprox", "label": "Prox", "weighting": "uniform", "sweep": {"mu": [0, 0.1, 1e-5]}},
        "cot": {"name": "coteaching", "sweep": {"forget_rate": ["oracle_nominal", 0.2]}},
    },
    "train": {"net": "mlp", "rounds": 3},
    "seeds": [0, 1],
    "grid": [{"datasets": ["digits"], "noises": ["sym40"], "partitions": ["held"], "methods": ["fedavg", "prox"]}],
    "tables": {"main": {"kind": "accuracy"}},
    "figures": {"mu": {"kind": "sweep"}},
}


@pytest.fixture
def study(config_copy: Path) -> Callable[..., Study]:
    """The study above after an edit, in a project with the real schemas, catalogue and data sets."""
    (config_copy / "config/config.yaml").write_text(yaml.safe_dump(CONFIG))

    def make(edit: Callable[[dict[str, Any]], Any] = lambda _: None, **config: Any) -> Study:
        data = json.loads(json.dumps(STUDY))
        edit(data)
        (config_copy / "config/studies/toy.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
        return Study(Project({**CONFIG, **config}, config_copy), "toy")

    return make


def test_an_option_of_the_net_can_be_swept(study: Callable[..., Study]) -> None:
    def sweep_widths(data: dict[str, Any]) -> None:
        data["methods"]["prox"] = {
            "name": "fedprox",
            "train": {"net": {"name": "small_cnn"}},
            "sweep": {"train.net.width": [8, 16]},
        }

    run = study(sweep_widths).find_run("digits", "sym40", "held", "prox@train.net.width=16", 0)
    assert run.spec["train"]["net"] == {"name": "small_cnn", "width": 16}
    assert run.label == "prox, width 16"


def test_a_variant_is_an_ordinary_run(study: Callable[..., Study]) -> None:
    planned = study()
    methods = dict.fromkeys(run.method for run in planned.runs)
    assert list(methods) == ["fedavg", "prox@mu=0", "prox@mu=0.1", "prox@mu=1e-05"]
    run = planned.find_run("digits", "sym40", "held", "prox@mu=0.1", 1)
    assert run.folder.startswith("store/runs/digits/symmetric-0.4/iid-5/fedprox/seed1/")
    assert (run.label, run.spec["method"]) == (
        "Prox, mu 0.1",
        {"name": "fedprox", "mu": 0.1, "weighting": "uniform"},  # as any other
    )

    def written_out(data: dict[str, Any]) -> None:
        data["methods"]["prox"] = {"name": "fedprox", "weighting": "uniform", "mu": 0.1}
        data["tables"], data["figures"] = {}, {}

    assert study(written_out).find_run("digits", "sym40", "held", "prox", 1).spec == run.spec


def test_selections_name_methods_or_single_variants(study: Callable[..., Study]) -> None:
    planned = study()
    swept = {run.method for run in planned.runs} - {"fedavg"}
    assert {run.method for run in planned.select_runs({"methods": ["prox"]})} == swept
    assert {run.method for run in planned.select_runs({"methods": ["prox@mu=0", "fedavg"]})} == {"prox@mu=0", "fedavg"}
    assert set(planned.page_metadata()["methods"]) == {run.method for run in planned.runs}

    def select_one(data: dict[str, Any]) -> None:
        data["grid"][0]["methods"] = ["prox@mu=0.1"]
        data["tables"], data["figures"] = {"one": {"kind": "accuracy", "methods": ["prox@mu=0.1"]}}, {}

    assert {run.method for run in study(select_one).runs} == {"prox@mu=0.1"}


def test_every_combination_of_two_fields(study: Callable[..., Study]) -> None:
    def two(data: dict[str, Any]) -> None:
        data["methods"]["prox"] = {"name": "fedprox", "sweep": {"mu": [1, 0.5], "weighting": ["uniform", "samples"]}}
        data["figures"]["mu"]["field"] = "mu"

    methods = list(dict.fromkeys(run.method for run in study(two).runs))
    values = [
        "mu=1@weighting=uniform",
        "mu=1@weighting=samples",
        "mu=0.5@weighting=uniform",
        "mu=0.5@weighting=samples",
    ]
    assert methods == ["fedavg", *(f"prox@{value}" for value in values)]


def test_training_settings_are_swept_too(study: Callable[..., Study]) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["methods"]["prox"] = {
            "name": "fedprox",
            "train": {"epochs": 2},
            "sweep": {"mu": [0.1], "train.lr": [0.1, 0.01]},
        }
        data["figures"] = {"rate": {"kind": "sweep", "field": "train.lr"}}

    runs = {run.method: run for run in study(edit).runs if run.seed == 0}
    run = runs["prox@mu=0.1@train.lr=0.01"]
    assert [run.spec["train"][key] for key in ("lr", "epochs")] == [0.01, 2]
    assert runs["prox@mu=0.1@train.lr=0.1"].spec["train"]["lr"] == 0.1
    assert (run.label, run.spec["method"]["mu"]) == ("prox, mu 0.1, lr 0.01", 0.1)
    with pytest.raises(SpecError, match=r"prox.sweep.train.epochs: train.epochs has a value outside the sweep"):
        study(lambda data: (edit(data), data["methods"]["prox"]["sweep"].update({"train.epochs": [1]})))


def test_a_rate_that_only_an_oracle_knows(study: Callable[..., Study]) -> None:
    def oracle(data: dict[str, Any]) -> None:
        data["grid"][0]["methods"].append("cot")
        data["figures"] = {}

    planned = study(oracle)
    runs = [
        planned.find_run("digits", "sym40", "held", name, 0)
        for name in ("cot@forget_rate=oracle_nominal", "cot@forget_rate=0.2")
    ]
    assert [(run.spec["method"]["forget_rate"], run.oracle_rate) for run in runs] == [(0.4, True), (0.2, False)]


def test_a_scale_may_have_fewer_values(study: Callable[..., Study]) -> None:
    def smaller(data: dict[str, Any]) -> None:
        data["scales"] = {"smoke": {"methods": {"prox": {"sweep": {"mu": [0.1]}}}}}
        data["tables"]["zero"] = {"kind": "accuracy", "methods": ["prox@mu=0"]}

    planned = study(smaller, scale="smoke", overlay={"seeds": [0]})
    assert [run.method for run in planned.runs] == ["fedavg", "prox@mu=0.1"]
    assert list(planned.tables) == ["main"]  # the other has no run at this scale


def test_mistakes_in_the_catalogue_name_it(config_copy: Path) -> None:
    file = config_copy / "config/catalogue.yaml"
    text = file.read_text()
    for sweep, key in (("{mu: [-1]}", "mu"), ("{mu: 1}", "sweep.mu")):
        file.write_text(text.replace("name: fedprox,", f"name: fedprox, sweep: {sweep},"))
        with pytest.raises(SpecError, match=rf"config/catalogue.yaml: methods.fedprox.{key}: "):
            _ = Project({**CONFIG, "studies": ["quick"]}, config_copy).catalogue


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d["methods"]["prox"].pop("sweep"), r"toy.yaml: figures.mu: expected a method with a `sweep`"),
        (lambda d: d["figures"]["mu"].update(field="q"), r"toy.yaml: figures.mu: no method sweeps 'q'; swept: mu"),
        (lambda d: d["grid"][0]["methods"].append("cot"), r"figures.mu: its methods sweep mu, forget_rate; choose one"),
        (lambda d: d["grid"][0].update(methods=["prox@mu=3"]), r"grid\[0\].methods: unknown variant 'prox@mu=3'"),
        (lambda d: d["tables"]["main"].update(methods=["prox@mu=3"]), r"main.methods\[0\]: no run has 'prox@mu=3'"),
        (lambda d: d["methods"].update({"a@mu=1": {"name": "fedavg"}}), "methods: .*, got .a@mu=1."),
        (lambda d: d["methods"].update({"a=1": {"name": "fedavg"}}), "methods: .*, got .a=1."),
    ],
)
def test_mistakes_beside_a_sweep(study: Callable[..., Study], edit: Callable[[Any], Any], message: str) -> None:
    def clean_tables(data: dict[str, Any]) -> None:
        if "cot" in json.dumps(data["grid"]):
            data["tables"] = {}
        edit(data)

    with pytest.raises(SpecError, match=message):
        study(clean_tables)


def test_ids_are_read_back() -> None:
    variant = variant_id("prox", {"mu": 0.1, "weighting": "uniform", "on": True, "of": None})
    assert variant == "prox@mu=0.1@weighting=uniform@on=true@of=null"
    assert (base_method(variant), parse_settings(variant)["weighting"]) == ("prox", "uniform")
    assert format_settings(parse_settings(variant_id("a", {"forget_rate": 20}))) == "forget rate 20"
    assert strip_settings("Prox, mu 0.1", "prox@mu=0.1") == "Prox"
    assert (base_method("fedavg"), parse_settings("fedavg"), strip_settings("A, b", "fedavg")) == ("fedavg", {}, "A, b")
    assert variant_id("p", {"v": 1.0}) == variant_id("p", {"v": 1}) == "p@v=1"
    assert len({variant_id("p", {"v": value}) for value in (0.1, 0.1 + 1e-16 * 2, 1e-8, 2**53, 1e22)}) == 5
    assert swept_field(["a", "b@q=1", "b@q=2"]) == "q"
    with pytest.raises(SpecError, match="two values of 'q' or more, got one"):
        swept_field(["a", "b@q=1", "c@q=1"])
    for value in ("a/b", "", "a@b", "x" * 40, "..="):
        with pytest.raises(SpecError, match="cannot be part of a path"):
            variant_id("p", {"v": value})


def test_random_search_draws_combinations(study: Callable[..., Study]) -> None:
    sweep = {
        "mu": {"low": 0.001, "high": 1, "log": True},
        "train.epochs": {"low": 1, "high": 3},
        "train.lr": [0.1, 0.01],
    }

    def search(draws: int) -> Callable[[Any], Any]:
        return lambda data: (data["methods"]["prox"].update(sweep=sweep, draws=draws), data.pop("figures"))

    short, long = (
        dict.fromkeys(run.method for run in study(search(draws)).runs if run.method.startswith("prox"))
        for draws in (3, 12)
    )
    assert list(long)[:3] == list(short)  # more draws keep the finished runs
    assert len(long) == 12
    drawn = [parse_settings(method) for method in long]
    assert all(0.001 <= float(values["mu"]) <= 1 for values in drawn)
    assert sum(float(values["mu"]) < 0.03 for values in drawn) in range(2, 11)  # half of the draws by log
    assert {values["train.epochs"] for values in drawn} == {"1", "2", "3"}
    assert {values["train.lr"] for values in drawn} == {"0.1", "0.01"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep": {"mu": [0.1, -1]}}, r"prox.mu: "),
        ({"sweep": {"my": [1]}}, r"prox.my: unknown key; did you mean 'mu'"),
        ({"sweep": {"mu": 0.1}}, r"prox.sweep.mu: "),
        ({"sweep": {"mu": []}}, r"prox.sweep.mu: "),
        ({"sweep": {}}, r"prox.sweep: "),
        ({"sweep": [1]}, r"prox.sweep: expected "),
        ({"sweep": {"mu": [1, 1.0]}}, r"prox.sweep.mu: "),
        ({"sweep": {"mu": [[1]]}}, r"prox."),
        ({"sweep": {"weighting": ["samples"]}}, r"prox.sweep.weighting: weighting has a value outside the sweep"),
        ({"sweep": {"name": ["fedavg"]}}, r"prox.sweep.name: name has a value outside the sweep"),
        ({"sweep": {"train.lr": [-1]}}, r"prox.train.lr: "),
        ({"sweep": {"train.rate": [1]}}, r"prox.train.rate: unknown key"),
        ({"sweep": {"train": ["fedavg"]}}, r"prox.train: "),
        # a random search
        ({"sweep": {"mu": {"low": 0, "high": 1}}}, r"prox.sweep.mu: a range needs `draws` beside `sweep`"),
        ({"sweep": {"mu": {"low": 1, "high": 0.1}}, "draws": 2}, r"prox.sweep.mu: expected low < high, got 1 and 0.1"),
        (
            {"sweep": {"mu": {"low": 0, "high": 1, "log": True}}, "draws": 2},
            r"prox.sweep.mu.low: expected a number above 0",
        ),
        ({"sweep": {"mu": {"low": 0, "hihg": 1}}, "draws": 2}, r"prox.sweep.mu.hihg: unknown key"),
        (
            {"sweep": {key: list(range(11)) for key in ("mu", "train.lr", "train.clip")}},
            r"prox.sweep: expected at most 1,000",
        ),
        ({"sweep": {"mu": [0, 1]}, "draws": 0}, r"prox.draws: expected integer, 1 ≤ x ≤ 500, got 0"),
        ({"sweep": {"mu": {"low": -1, "high": -0.5}}, "draws": 2}, r"prox.mu: expected number ≥ 0, got -0"),
    ],
)
def test_mistakes_in_a_sweep(study: Callable[..., Study], changes: Any, message: str) -> None:
    with pytest.raises(SpecError, match=rf"toy.yaml: methods.{message}"):
        study(lambda data: data["methods"]["prox"].update(changes))
