"""The benchmarks run; what they measure is no part of any verdict."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import benchmarks
from benchmarks import changed_configs, corrected
from benchmarks.corruptions import SCENARIOS, spoilt

ROOT = Path(__file__).parents[2]
RUNGS = {"eager", "resident", "graph", "tf32", "bf16", "lanes 4", "lanes 10", "shared 2", "shared 4", "compiled"}
# What torch brings itself (filelock, jinja2) may be used.
ABSENT = "snakemake dvc cleanlab pandas sklearn scipy matplotlib torchvision pyarrow yaml jsonschema"


MODULES = {found.name for found in pkgutil.iter_modules(benchmarks.__path__)}
ELSEWHERE = {"__main__", "flower_cost"}  # the first runs when it is imported, the second needs Flower


@pytest.mark.parametrize("name", sorted(MODULES - ELSEWHERE))
def test_every_benchmark_finds_what_it_imports(name):
    importlib.import_module(f"benchmarks.{name}")


def test_the_gpu_ladder_climbs_on_the_stand_in_with_torch_and_numpy_only(tmp_path):
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({ABSENT.split()!r}))\n"
        "from benchmarks import gpu_ladder\n"
        "gpu_ladder.main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "--dry", "--minutes=2", f"--out={tmp_path}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, text=True)
    found = json.loads((tmp_path / "ladder.json").read_text())
    assert found["dry"]
    assert {"commit", "torch", "processor"} <= found["machine"].keys()
    for rows in found["ladder"].values():
        assert rows.pop("evaluation")["seconds"] > 0
        assert set(rows) == RUNGS
        assert all(row["ms_per_step"] > 0 for row in rows.values())
    assert found["whole_run"]["finished"]
    assert "the times mean nothing" in (tmp_path / "ladder.md").read_text()
    assert {p.name for p in tmp_path.iterdir()} == {"ladder.json", "ladder.md"}


def test_a_changed_config_plans_or_is_refused_in_one_line(tmp_path):
    """Within five seconds, naming file and key; `python -m benchmarks.changed_configs` draws more."""
    refused, wrong = changed_configs.count_refusals(60, 25, tmp_path)
    assert not wrong, "\n".join(wrong)
    assert 20 < refused < 55


def test_corrected_labels_are_those_that_the_command_wrote():
    """Images whose class is easily seen: what is corrected is counted rightly, and the table has the gains."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, 1100)
    x = draw.integers(0, 60, (1100, 10, 10), dtype=np.uint8)
    x[np.arange(1100), y] += 180
    case = spoilt(x, y, 600, 6, "iid", SCENARIOS["A"], 0)
    found = corrected.compared(case, (x[:200], y[:200]), 0, rounds=12)
    assert found["wrong_before"] == case.wrong.sum() > 60
    spoilt_or_mended = found["spoilt_by_change"] - found["changed_rightly"]
    assert found["wrong_after"] == found["wrong_before"] + spoilt_or_mended
    assert found["changed_rightly"] > 0.7 * found["wrong_before"]
    assert found["corrected"] >= found["given"]
    rows = [{"scenario": "A", "seed": seed, **found, "given": 0.5, "corrected": 0.5 + seed / 10} for seed in (0, 2)]
    lines = corrected.table(rows).splitlines()
    assert [len(line.split("|")) for line in lines] == [11] * 5
    assert "| 50.0 | 70.0 | +20.0 |" in lines[3]
    assert "mean of 2, ± 14.1 between runs" in lines[4]
    assert "| 50.0 | 60.0 | +10.0 |" in lines[4]


def test_named_says_what_is_missing_in_a_line(tmp_path):
    command = [sys.executable, "-m", "benchmarks.named", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"named: {tmp_path}/index.csv: no such file\n")


def test_named_counts_each_run_in_its_range_of_accuracy(tmp_path):
    from benchmarks.named import findings, table

    said = [(0.9, 0.8, 0.8, 0.4), (0.95, 0.5, 1.0, 0.4), (0.2, None, 0.0, 0.4), (0.4, 0.25, 1.0, 0.4)]
    said += [(0.9, 0.1, 1.0, 0.0)]
    index = tmp_path / "results/study/index.csv"
    index.parent.mkdir(parents=True)
    index.write_text("dir\n" + "".join(f"store/runs/{number}\n" for number in range(len(said))), encoding="utf-8")
    for number, (accuracy, precision, recall, rate) in enumerate(said):
        folder = tmp_path / f"store/runs/{number}"
        folder.mkdir(parents=True)
        told = {"noise_rate": rate, "suspects_auroc": 0.9, "suspects_precision": precision, "suspects_recall": recall}
        summary = {"accuracy": {"last": accuracy}, "diagnostics": told}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    found = findings([index.parent, index])
    assert len(found) == 4  # the last has no wrong label, and a run of two studies counts once
    assert table(found)[2:] == [
        "| 0 to 30 % | 1 | 0.900 | – | – | 0 % |",  # named nothing
        "| 30 to 50 % | 1 | 0.900 | 4.00 | 4.00 to 4.00 | 0 % |",
        "| 85 to 100 % | 2 | 0.900 | 1.50 | 1.10 to 1.90 | 50 % |",
    ]


def test_memorised_labels_are_those_given_to_an_image_and_not_to_others_of_its_class():
    from benchmarks.memorised_labels import compare

    draw = np.random.default_rng(0)
    true = draw.integers(0, 10, 5000)
    given = (true + draw.integers(1, 10, 5000)) % 10
    learned = draw.random(5000) < 0.3
    found = compare(np.where(learned, given, true), given, true)
    assert found.images == 5000
    assert (found.given, found.true) == pytest.approx((learned.mean(), 1 - learned.mean()))
    assert found.chance == pytest.approx(0.3 / 9, abs=0.01)


def test_accuracy_follows_the_share_of_a_class():
    """The correlation is within each class: here it is negative in each, and positive over both."""
    from benchmarks.memorised_labels import correlate

    shares = np.array([[0.02, 0.98], [0.05, 0.95], [0.2, 0.8]])
    accuracies = np.array([[0.3, 0.7], [0.2, 0.8], [0.1, 0.9]])
    correlation, means = correlate(shares, accuracies)
    assert correlation == pytest.approx(
        np.mean([np.corrcoef(*both)[0, 1] for both in zip(shares.T, accuracies.T, strict=True)])
    )
    assert correlation < -0.8
    assert means == pytest.approx([0.3, 0.2, np.nan, (0.7 + 0.8 + 0.9 + 0.1) / 4], nan_ok=True)
    still = np.array([[0.3, 0.0], [0.2, 0.0], [0.1, 0.0]])  # a class that is never recognised has no correlation
    assert correlate(shares, still)[0] == pytest.approx(np.corrcoef(shares[:, 0], still[:, 0])[0, 1])


def test_memorised_labels_reads_a_run_and_makes_its_labels_and_cohorts_again(tmp_path, capsys):
    import pyarrow.parquet as pq

    import fednoise_core as fn
    from benchmarks import memorised_labels

    spec = {
        "dataset": {"source": "digits", "test": 360},
        "noise": {"kind": "symmetric", "rate": 0.4},
        "partition": {"kind": "openset", "clients": 10, "mode": "uniform"},
        "train": {"net": "mlp", "rounds": 6, "fraction": 0.3, "epochs": 1},
        "seed": 3,
    }
    data = fn.dataset(spec["dataset"])
    labels = fn.inject(data, spec["noise"], 3)
    partition = fn.partition_of(data, spec["partition"], 3, labels)
    run = fn.run(data, labels, partition, method="fedavg", train=spec["train"], seed=3, out=tmp_path)
    assert memorised_labels.main([str(tmp_path)]) == 2
    assert "spec.json: expected a run of the workflow" in capsys.readouterr().err
    (tmp_path / "spec.json").write_text(json.dumps({"spec": spec}), encoding="utf-8")
    again = memorised_labels.ExaminedRun(tmp_path)
    rounds = {round: again.find_rows(round) for round in range(1, 7)}
    work = pq.read_table(tmp_path / "metrics.parquet", filters=[("metric", "=", "clients")])["work"].to_pylist()
    assert np.cumsum(list(map(len, rounds.values()))) / again.world.samples_a_round == pytest.approx(work[-6:])
    predicted, wrong = run.predict(data.x_train).labels, labels.noisy != data.y_train
    last = np.zeros(data.n, bool)
    last[rounds[6]] = True
    found = again.compare_labels()
    for where, rows in (("all clients", wrong), ("clients of the last round", wrong & last)):
        assert found[where].images == rows.sum()
        assert found[where].given == np.mean(predicted[rows] == labels.noisy[rows])
        assert found[where].true == np.mean(predicted[rows] == data.y_train[rows])
    table = pq.read_table(tmp_path / "metrics.parquet").to_pandas()
    shares = [np.bincount(labels.noisy[rounds[round]], minlength=10) / len(rounds[round]) for round in range(3, 7)]
    classes = [f"accuracy_class_{label}" for label in range(10)]
    told = table[table["round"] > 2].pivot_table(index="round", columns="metric", values="value")[classes]
    for ours, expected in zip(
        again.compare_shares(), memorised_labels.correlate(np.array(shares), told.to_numpy()), strict=True
    ):
        assert ours == pytest.approx(expected, nan_ok=True)
    assert memorised_labels.main([str(tmp_path)]) == 0
    assert f"| {wrong.sum()} | all clients |" in capsys.readouterr().out
    (tmp_path / "spec.json").write_text(json.dumps({"spec": {**spec, "train": {**spec["train"], "fraction": 0.5}}}))
    assert memorised_labels.main([str(tmp_path)]) == 2
    assert "round 6: expected 5 clients, got [3.0]: not drawn as usual" in capsys.readouterr().err
