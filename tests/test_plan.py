"""What the plan counts: images, runs that are left, and mistakes in targets; rates are measured once."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fednoise_core.io import SpecError
from workflow_scripts import plan, rates
from workflow_scripts.config_file import read_yaml
from workflow_scripts.project import Project
from workflow_scripts.rates import Rate, Rates

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Of a folder with this project's settings and published results, in which nothing has run."""
    for file in ("config", "docs"):
        (tmp_path / file).symlink_to(ROOT / file)
    monkeypatch.chdir(tmp_path)
    plan._measured.cache_clear()
    return Project(read_yaml("config/config.yaml"))


class Known(Rates):
    """One rate for every net."""

    def __init__(self, trained: float = 1e-3, tested: float = 1e-4) -> None:
        self.rate = Rate(trained, tested, 1000)

    def of(self, net, shape, classes, batch) -> Rate:
        return self.rate


def test_images_of_a_run() -> None:
    """20 clients, a quarter of them, 1,000 samples, 5 epochs, 60 rounds: 60 · 5/20 · 1,000 · 5 images; the test set of
    200 is seen before the first round and after every second.
    """
    train = {"rounds": 60, "fraction": 0.25, "epochs": 5, "eval_every": 2}
    assert plan.images(train, 1000, 200, 20) == (75_000, 31 * 200)


def test_a_study_its_parts_and_what_is_left(project: Project, tmp_path: Path) -> None:
    whole = plan.planned_runs(project, ["quick"])["quick"]
    assert len(plan.planned_runs(project, ["quick_runs"])["quick"]) == len(whole)
    assert plan.planned_runs(project, ["quick_settings"])["quick"] == []
    few = plan.planned_runs(project, ["quick_main"])["quick"]
    assert 0 < len(few) <= len(whole)
    costs = [plan.cost_of(project, run, Known()) for run in whole]
    said = plan.words(project, {"quick": whole}, Known(), 2)
    assert said[0].startswith(f"quick: {len(whole)} runs, ")
    half = sum(one.seconds for one in costs) / 2
    assert said[-2].startswith(f"all: {len(whole)} runs, about {plan._time(half)} on 2 cores")
    made = tmp_path / whole[0].folder
    made.mkdir(parents=True)
    (made / "summary.json").write_text("{}")
    assert f"{len(whole) - 1} runs (1 more are made)" in plan.words(project, {"quick": whole}, Known(), 2)[0]


def test_cores_make_no_run_shorter(project: Project) -> None:
    run = plan.planned_runs(project, ["quick"])["quick"][0]
    alone = plan._time(plan.cost_of(project, run, Known()).seconds)
    assert plan.words(project, {"quick": [run]}, Known(), 8)[-2].startswith(f"all: 1 runs, about {alone} on 8 cores")


@pytest.mark.parametrize("pair", ["scale", "scale=[cpu"])
def test_a_config_that_is_no_pair(pair: str, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main(["quick", "--config", pair]) == 2
    assert f"plan: --config: {pair!r} is no KEY=VALUE" in capsys.readouterr().err


def test_a_method_counts_what_it_needs_more_than_fedavg(project: Project) -> None:
    """Two nets are more than twice one; FedCorr, of fewer passes, works things out besides; pooled data train as much
    as FedAvg's.
    """
    assert plan.factor("fedavg") == 1
    assert 2 < plan.factor("coteaching") < 3
    assert 1 < plan.factor("fedcorr") < 1.5
    assert 1 <= plan.factor("centralised") < 1.5
    assert plan.factor("dividemix") > 4  # its passes alone are less than four times FedAvg's
    assert plan.factor("somebody's own") == 1


@pytest.mark.parametrize(("study", "worst"), [("cpu-fmnist", 1.35), ("gallery-methods", 1.9)])
def test_the_plan_agrees_with_the_published_costs(project: Project, study: str, worst: float) -> None:
    """Of each method relative to FedAvg on the same net, with an image scored at a third of an image trained on. The
    first study is where the factors come from (entries of a method share one), the second another data set.
    """
    with Path("docs/results", study, "cost.csv").open(encoding="utf-8", newline="") as file:
        measured = {row["method"]: float(row["cpu_seconds_mean"]) for row in csv.DictReader(file)}
    runs = {run.method: run for run in plan.planned_runs(project, [study])[study]}
    rates = Known(1e-3, 1e-3 / 3)
    cost = {name: plan.cost_of(project, run, rates).seconds - plan.START for name, run in runs.items()}
    for name, run in runs.items():
        if len(plan._nets(run.spec["train"])) > 1:
            continue  # its FedAvg was not measured
        small = plan._nets(run.spec["train"]) == plan._nets(runs["fedavg"].spec["train"])
        base = "fedavg" if small else "fedavg-resnet"
        ratio = cost[name] / cost[base] * measured[base] / measured[name]
        assert 1 / worst < ratio < worst, (name, ratio)


def test_personal_models_are_scored_when_their_clients_have_trained(project: Project) -> None:
    """20 clients, 4 a round, an evaluation every 2: of 8 models at most, and no more than there are; each a second."""
    run = next(run for run in plan.planned_runs(project, ["cpu-fmnist"])["cpu-fmnist"] if run.method == "local")
    tested = plan._tested(project, run.dataset)

    def scored(**train) -> float:
        settings = {**run.spec["train"], **train}
        changed = replace(run, spec={**run.spec, "train": settings})
        evaluations = 1 + settings["rounds"] / settings["eval_every"]
        return (plan.cost_of(project, changed, Known(0.0, 1 / tested)).seconds - plan.START) / evaluations

    assert scored() == pytest.approx(8)
    assert scored(eval_every=1) == pytest.approx(4)
    assert scored(fraction=1.0) == pytest.approx(20)


def test_pooled_data_train_fedavgs_work_or_at_least_an_epoch(project: Project) -> None:
    run = next(run for run in plan.planned_runs(project, ["cpu-fmnist"])["cpu-fmnist"] if run.pooled)
    samples = project.facts(run.dataset)[0]
    for fraction, epochs in ((0.2, 1), (0.6, 3), (0.01, 1)):  # of 5 local epochs
        train = {**run.spec["train"], "fraction": fraction}
        changed = replace(run, spec={**run.spec, "train": train})
        assert plan._counts(project, changed, personal=False)[0] == train["rounds"] * epochs * samples
    changed = replace(run, spec={**run.spec, "method": {**run.spec["method"], "epochs": 2}})
    assert plan._counts(project, changed, personal=False)[0] == 2 * run.spec["train"]["rounds"] * samples


def test_samples_kept_for_validation_are_not_trained_on(project: Project) -> None:
    run = plan.planned_runs(project, ["quick"])["quick"][0]
    kept = replace(run, spec={**run.spec, "partition": {**run.spec["partition"], "validation": 0.25}})
    whole, less = (plan._counts(project, one, personal=False) for one in (run, kept))
    assert less == (pytest.approx(0.75 * whole[0]), whole[1])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("qick", "no target; studies: .*quick"),
        ("quick_mani", "quick has settings, runs, main"),
        ("feddpcont_table12", "tables.table12: shows nothing but clothing1m-public, which is not here"),
    ],
)
def test_unknown_targets(project: Project, target: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan.planned_runs(project, [target])


def test_data_sets_that_are_not_here_are_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    said: list[str] = []
    plan.planned_runs(project, ["feddpcont", "quick"], said)
    assert [line[: len("feddpcont: not here: clothing1m-public")] for line in said] == [
        "feddpcont: not here: clothing1m-public"
    ]


def test_a_net_whose_dropout_stays_on_in_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "TESTED", 3)
    monkeypatch.setattr(rates, "MOMENT", 0.0)
    for batch in (2, 5):  # fewer and more than the images of a forward pass
        found = Rates(tmp_path / "r.json").of({"name": "cnn9", "dropout_at_eval": True}, (1, 28, 28), 10, batch)
        assert found.trained > 0
        assert found.tested > 0


def test_a_rate_is_measured_once(tmp_path: Path) -> None:
    file = tmp_path / "work/rates.json"
    first = Rates(file).of("mlp", (1, 8, 8), 10, 32)
    assert first.trained > 0
    assert first.tested > 0
    known = json.loads(file.read_text())
    for rate in known.values():
        rate["trained"] = 7.0
    file.write_text(json.dumps(known))
    assert Rates(file).of("mlp", (1, 8, 8), 10, 32).trained == 7.0
    assert len(json.loads(file.read_text())) == 1
    file.write_text("damaged")
    assert Rates(file).of("mlp", (1, 8, 8), 10, 32).trained != 7.0


def test_of_a_slow_net_a_few_images_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that the work itself moves: 3 ms a call and 10 ms an image."""
    clock, calls = [0.0], []

    def work(count: int) -> None:
        calls.append(count)
        clock[0] += 0.003 + 0.010 * count

    monkeypatch.setattr(rates.time, "process_time", lambda: clock[0])
    monkeypatch.setattr(rates.time, "perf_counter", lambda: clock[0])
    assert rates._per_image(work, 10) == pytest.approx(0.0103)  # a batch fits the moment
    assert max(calls) == 10
    calls.clear()
    assert rates._per_image(work, 256) == pytest.approx(0.010 + 0.003 / rates.FEW)
    assert max(calls) == rates.FEW


def test_what_takes_less_is_not_said(project: Project, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(plan, "Rates", Known)
    plan.main(["quick", "--cores", "2"])
    said = capsys.readouterr().out
    runs = plan.planned_runs(project, ["quick"])
    hours = plan.hours(project, runs, Known(), 2)
    assert 0 < hours < 10
    for over, expected in ((hours * 1.01, ""), (hours * 0.99, said)):
        assert plan.main(["quick", "--cores", "2", "--over", str(over)]) == 0
        assert capsys.readouterr().out == expected
