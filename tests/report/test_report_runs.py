"""Run folders are read into tidy frames. Errors name damaged, misplaced and missing files."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from fake_runs import write_study

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.provenance.checksums import write_sums
from workflow_scripts.report.runs.frames import load_metric, tabulate_results
from workflow_scripts.report.runs.run import listed_runs, load, select

METHODS = ["fedavg", "coteaching-oracle", "local"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_study(tmp_path, grid=[{"noises": ["sym40"], "partitions": ["iid"], "methods": METHODS}], rounds=12)
    return tmp_path


def folder(root: Path, method: str = "fedavg", seed: int = 0) -> Path:
    return root / "runs" / "digits" / "sym40" / "iid" / method / f"seed{seed}"


def test_the_list_and_the_index_name_the_same_runs(root: Path) -> None:
    """Paths of an index are relative to the folder that holds results/."""
    listed = listed_runs(root / "runs.json")
    study = root / "results/study"
    study.mkdir(parents=True)
    rows = [{key: value for key, value in vars(run).items() if value is not None} for run in listed]
    inside = [
        row | {key: value.relative_to(root) for key, value in row.items() if isinstance(value, Path)} for row in rows
    ]
    pd.DataFrame(inside).to_csv(study / "index.csv", index=False)
    assert [vars(run) for run in listed_runs(study)] == [vars(run) for run in listed_runs(study / "index.csv")]
    for run, entry in zip(listed, listed_runs(study), strict=True):
        assert (run.setting, run.method, run.seed, run.label) == (entry.setting, entry.method, entry.seed, entry.label)
        assert (run.dir, run.labels, run.arrays) == (entry.dir, entry.labels, entry.arrays)
    assert len(listed) == 6


def test_accuracies_become_percent_and_losses_do_not(root: Path) -> None:
    runs = load(listed_runs(root / "runs.json"))
    summary = json.loads((folder(root) / "summary.json").read_text())
    row = tabulate_results(runs).query("method == 'fedavg' and seed == 0").iloc[0]
    assert row["best"] == pytest.approx(100 * summary["accuracy"]["best"])
    stored = pd.read_parquet(folder(root) / "metrics.parquet")
    run = next(run for run in runs if (run.listed.method, run.listed.seed) == ("fedavg", 0))
    loss = load_metric([run], "loss")["value"]
    assert list(loss) == list(stored.loc[stored["metric"] == "loss", "value"])


def test_tidy_picks_client_and_metric_family(root: Path) -> None:
    runs = [run for run in load(listed_runs(root / "runs.json")) if run.listed.method == "local"]
    assert set(load_metric(runs)["client"]) == {-1}
    assert set(load_metric(runs, client=None)["client"]) == {-1, 0, 1, 2, 3}
    assert load_metric(runs, "accuracy_class_*")["metric"].nunique() == 10


def test_select_orders_and_refuses_lists_without_runs(root: Path) -> None:
    runs = listed_runs(root / "runs.json")
    picked = select(runs, {"methods": ["local", "fedavg", "not-at-this-scale"], "seeds": [1]})
    assert [(e.method, e.seed) for e in picked] == [("local", 1), ("fedavg", 1)]
    assert select(runs, {"methods": None}) == runs
    with pytest.raises(SpecError, match=r"methods: \['fedagv'\] matches no run; there are coteaching-oracle, fedavg"):
        select(runs, {"methods": ["fedagv"]})


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("summary.json", lambda p: p.write_text(p.read_text()[:200]), r"summary\.json: damaged, not JSON"),
        ("summary.json", lambda p: p.write_text("[]"), r"summary\.json: damaged, not a JSON object"),
        ("summary.json", lambda p: p.write_text('{"run": {}}'), r"summary\.json: has no 'accuracy'"),
        ("summary.json", lambda p: p.unlink(), r"summary\.json: no such file"),
        (
            "spec.json",
            lambda p: p.write_text('{"spec": {}, "digest": "0"}'),
            r"summary\.json: spec digest .* is not that of spec",
        ),
        ("metrics.parquet", lambda p: p.write_bytes(p.read_bytes()[:-20]), r"metrics\.parquet: damaged parquet file"),
        ("metrics.parquet", lambda p: p.unlink(), r"metrics\.parquet: no such file"),
    ],
)
def test_damage_is_named(root: Path, name: str, damage: object, message: str) -> None:
    damage(folder(root) / name)  # type: ignore[operator]
    with pytest.raises(ArtifactError, match=r"fedavg/seed0/" + message):
        load_metric(load(listed_runs(root / "runs.json")))


@pytest.mark.parametrize("name", ["summary.json", "metrics.parquet"])
def test_a_file_that_was_edited_after_its_step_is_refused(root: Path, name: str) -> None:
    write_sums(folder(root))
    load(listed_runs(root / "runs.json"))
    file = folder(root) / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ArtifactError, match=rf"fedavg/seed0/{name}: changed after its step wrote it"):
        load(listed_runs(root / "runs.json"))


def test_a_run_in_the_wrong_place_is_named(root: Path) -> None:
    folder(root, seed=1).rename(root / "elsewhere")
    shutil.copytree(folder(root, seed=0), folder(root, seed=1))
    with pytest.raises(ArtifactError, match=r"seed1/summary\.json: is of seed 0, expected 1"):
        load(listed_runs(root / "runs.json"))


def test_a_broken_runs_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text('[{"dataset": "digits"}]')
    with pytest.raises(ArtifactError, match=r"runs\.json: run 0: KeyError: 'noise'"):
        listed_runs(tmp_path / "runs.json")
    (tmp_path / "runs.json").write_text("[")
    with pytest.raises(ArtifactError, match="not a JSON list of runs"):
        listed_runs(tmp_path / "runs.json")
    with pytest.raises(ArtifactError, match="no such file"):
        listed_runs(tmp_path / "missing.json")


def test_a_label_and_the_dagger_come_from_the_list(root: Path) -> None:
    """They change no number, so the files of a run need not contain them."""
    rows = json.loads((root / "runs.json").read_text())
    for row in rows:
        row |= {"label": "Ours", "oracle_rate": row["method"] == "local"} if row["method"] != "fedavg" else {}
    (root / "runs.json").write_text(json.dumps(rows))
    frame = tabulate_results(load(listed_runs(root / "runs.json")))
    frame = frame.drop_duplicates("method").set_index("method")
    assert frame["method_label"].to_dict() == {"fedavg": "FedAvg", "coteaching-oracle": "Ours", "local": "Ours"}
    assert frame["marks"].to_dict() == {"fedavg": "", "coteaching-oracle": "", "local": "†§"}
