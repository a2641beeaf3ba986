"""`fednoise leaderboard`: the settings that its arguments become, and its refusal to compare unlike machines."""

import json
import lzma
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fednoise_core.io import ArtifactError, SpecError, json_digest
from fednoise_core.settings.variants import parse_settings
from workflow_scripts.commands import leaderboard
from workflow_scripts.commands.leaderboard import (
    compare_machines,
    describe_choice,
    enter_method,
    find_published,
    list_settings,
    parse_arguments,
    select_blocks,
    write_tuned,
)
from workflow_scripts.config.overrides import nest_value
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.docgen.published_runs import read_packed
from workflow_scripts.report.runs.run import ListedRun, RecordedRun
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
GRID: list[dict[str, Any]] = [
    {"datasets": ["digits"], "noises": [noise], "partitions": ["iid"], "methods": ["fedavg"]}
    for noise in ("sym40", "sym20", "pair30")
]
WEAK = {"name": "mine:Weak", "label": "Weak"}
SETTINGS = {("digits", "sym40", "iid"), ("digits", "sym20", "iid")}

NEEDED = {
    "fmnist-6k": {"main", "gains", "accuracy"},
    "cifar10n-10k-public": {"main-cifar10n", "gains-cifar10n", "accuracy-cifar10n"},
}


def test_arguments_become_settings() -> None:
    assert parse_arguments(["mu=0.1", "train.lr=0.03,0.1", "per=batch"]) == {
        "mu": [0.1],
        "train.lr": [0.03, 0.1],
        "per": ["batch"],
    }
    assert nest_value("train.lr", 0.3) == {"train": {"lr": 0.3}}
    with pytest.raises(SpecError, match=r"mu: expected a setting such as mu=0\.1"):
        leaderboard.main(["fedprox", "--settings", "sym40", "--tune", "mu"])  # settings may come last


@pytest.mark.parametrize("word", ["train.rounds=200", "train.net.width=32", "train.eval_last=10", "train={rounds: 9}"])
def test_an_entry_trains_as_all_methods_do(word: str) -> None:
    with pytest.raises(SpecError, match=rf"{word.partition('=')[0]}: all methods of the leaderboard train alike\."):
        parse_arguments(["mu=0.1", word])
    assert parse_arguments(["train.momentum=0.9", "rounds=3"]) == {"train.momentum": [0.9], "rounds": [3]}


def test_settings_are_chosen_by_words_in_their_names() -> None:
    assert select_blocks(GRID, SETTINGS, []) == GRID[:2]  # pair30 has no published runs
    assert select_blocks(GRID, SETTINGS, ["sym20"]) == [GRID[1]]
    with pytest.raises(SpecError, match="--settings pair: in no name of a published setting: digits-sym40-iid"):
        select_blocks(GRID, SETTINGS, ["pair"])
    with pytest.raises(SpecError, match="FedAvg is tuned on no data set"):
        select_blocks(GRID, set(), [])


def test_the_page_and_the_help_name_settings_that_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    published = list_settings(Study(Project(read_yaml("config/config.yaml")), "leaderboard"))
    listed = Path("docs/leaderboard.md").read_text(encoding="utf-8").partition("are published so far: ")[2]
    ids = re.findall(r"`(\S+)`", listed.partition(".\n")[0])
    assert sorted(ids) == sorted(f"{noise}-{partition}" for _, noise, partition in published)
    (example,) = re.findall(r"--settings (\S+)", str(leaderboard.__doc__))
    assert all(any(word in id_ for id_ in ids) for word in example.split(","))


def test_an_entry_trains_its_method_and_fedavg_once_a_setting() -> None:
    board = {"grid": GRID, "seeds": [0, 1, 2], "tables": {}}
    entry = enter_method(board, "my-weak", WEAK, GRID[:2], {"digits": {"share": 0.5}}, "Weak was tuned.")
    assert [block["methods"] for block in entry["grid"]] == [["my-weak", "fedavg"]] * 2
    assert entry["grid"][0]["settings"] == {"my-weak": {"share": 0.5}}
    assert entry["subsets"]["entry"] == [
        {"methods": ["my-weak"], "noises": ["sym40", "sym20"]},
        {"methods": ["fedavg"], "noises": ["sym40", "sym20"], "seeds": [0]},
    ]
    assert GRID[0]["methods"] == ["fedavg"]
    assert entry["methods"] == {"my-weak": WEAK}
    assert entry["text"] == "Weak was tuned."


def test_an_entry_has_the_tables_of_its_data_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real study loads for each choice of data sets."""
    monkeypatch.chdir(ROOT)
    board = read_yaml("config/studies/leaderboard.yaml")
    first, second = ([block for block in board["grid"] if block["datasets"] == [name]][:2] for name in sorted(NEEDED))
    for grid, ids in ((first, {"cifar10n-10k-public"}), (second, {"fmnist-6k"}), (first + second, set(NEEDED))):
        entry = enter_method(board, "my-weak", {"name": "fedavg", "label": "Weak"}, grid, {}, "")
        file = tmp_path / "entry.yaml"
        file.write_text(yaml.safe_dump(json.loads(json.dumps(entry))), encoding="utf-8")
        project = Project(read_yaml("config/config.yaml"))
        monkeypatch.setitem(project.study_files, "entry", str(file))
        study = Study(project, "entry")
        assert set(study.tables) == set().union(*(NEEDED[id_] for id_ in ids))


def test_the_choice_is_described_with_its_agreement_and_an_end_of_the_tried_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = {("0.01", "1"): 0.5, ("0.03", "1"): 0.25, ("0.1", "1"): 0.4, ("0.01", "2"): 0.5}
    runs = [
        SimpleNamespace(method=f"weak@train.lr={rate}@mu={mu}", dataset="digits", spec={"dataset": {"label": "Digits"}})
        for rate, mu in scores
    ]
    monkeypatch.setattr(leaderboard, "_read_score", lambda run: scores[tuple(parse_settings(run.method).values())])
    text = describe_choice(SimpleNamespace(runs=runs))
    assert text == (
        "On Digits it ran with train.lr=0.01, mu=1, whose agreement with held-out noisy labels is 50.0 % (others: 25.0 "
        "to 50.0). No value beyond train.lr=0.01 was tried."
    )
    assert describe_choice(SimpleNamespace(runs=runs[1:2])) == (
        "On Digits it ran with train.lr=0.03, mu=1, whose agreement with held-out noisy labels is 25.0 %."
    )


def make_runs(*accuracies: float, noise: str = "sym40") -> list[RecordedRun]:
    runs = []
    for seed, accuracy in enumerate(accuracies):
        scores = dict.fromkeys(("best", "last", "last10_mean", "round0"), accuracy / 100)
        listed = ListedRun("digits", noise, "iid", "fedavg", seed, Path(str(seed)))
        runs.append(RecordedRun(listed, {"spec": {}}, {"headline_view": "global", "accuracy": scores}))
    return runs


def test_machines_agree_within_three_deviations_of_fedavg_and_are_refused_beyond() -> None:
    published = make_runs(70, 71, 72) + make_runs(60, 61, 62, noise="sym20")  # their deviation is 1
    measured = make_runs(71) + make_runs(59.5, noise="sym20")
    assert compare_machines(measured, published) == (
        "FedAvg on this machine and the published runs differ by 1.00 points at most (mean +0.25) in 2 settings; the "
        "deviation over seeds is 1.00."
    )
    compare_machines(make_runs(67.01), published)
    with pytest.raises(ArtifactError, match=r"3.01 points at most .* more than 3 deviations"):
        compare_machines(make_runs(66.99), published)
    assert "could not be checked" in compare_machines(measured, [])
    assert "could not be checked" in compare_machines(measured, make_runs(70))  # no deviation is known


def test_earlier_tuned_settings_stay(tmp_path: Path) -> None:
    file = tmp_path / "board.yaml"
    write_tuned({"digits": {"fedavg": {"train": {"lr": 0.1}}}}, file)
    write_tuned({"digits": {"gce": {"q": 0.5}}, "mnist": {"gce": {}}}, file)
    assert read_yaml(file) == {
        "digits": {"fedavg": {"train": {"lr": 0.1}}, "gce": {"q": 0.5}},
        "mnist": {"gce": {}},
    }


def test_published_runs_that_are_not_those_of_their_checksum_are_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.json.xz.sha256").write_text("0" * 64 + "  runs.json.xz\n")
    for may_be_missing in (False, True):
        with pytest.raises(ArtifactError, match=r"runs.json.xz: not the file that runs.json.xz.sha256 is of"):
            read_packed(tmp_path / "runs.json.xz", may_be_missing=may_be_missing)


def test_a_missing_file_of_published_runs_is_an_error_unless_it_may_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"runs.json.xz: missing\. Name a file runs\.json\.xz of docs/results$"):
        read_packed(tmp_path / "runs.json.xz")
    assert read_packed(tmp_path / "runs.json.xz", may_be_missing=True) == {}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["metrics"], r"accuracy\.best is 0\.\d+, by its rounds"),
        (["spec.json"], "its settings are those of another run"),
        (["spec.json", "summary.json", "metrics"], "its settings are those of another run"),
    ],
)
def test_published_runs_whose_files_were_exchanged_are_refused(names: list[str], problem: str, tmp_path: Path) -> None:
    file, runs = tmp_path / "runs.json.xz", read_packed(ROOT / "docs/results/fedmixcon-cpu/runs.json.xz")
    ours, theirs = (next(runs[folder] for folder in runs if f"/{name}/" in folder) for name in ("fedavg", "fedmixcon"))
    ours.update({name: theirs[name] for name in names})
    file.write_bytes(lzma.compress(json.dumps(runs).encode()))
    with pytest.raises(ArtifactError, match=problem):
        read_packed(file)


def test_an_entry_needs_a_label_that_no_published_method_has() -> None:
    board: Any = SimpleNamespace(runs=[SimpleNamespace(label="FedProx")])
    assert leaderboard.define_entry("mine:Weak", ["mu=1"], board) == {"name": "mine:Weak", "label": "Weak"}
    assert leaderboard.define_entry("mine:FedProx", ["label=Better"], board)["label"] == "Better"
    for method, values in (("mine:FedProx", []), ("mine:Weak", ["label=FedProx"])):
        with pytest.raises(SpecError, match=r"a published method is called 'FedProx'. Add 'label=My FedProx'$"):
            leaderboard.define_entry(method, values, board)


def test_published_runs_of_a_class_of_ones_own_are_read(tmp_path: Path) -> None:
    file, runs = tmp_path / "runs.json.xz", read_packed(ROOT / "docs/results/fedmixcon-cpu/runs.json.xz")
    folder = next(folder for folder in runs if "/fedavg/" in folder)
    parts = runs[folder]
    spec, summary = json.loads(parts["spec.json"]), json.loads(parts["summary.json"])
    spec["spec"]["method"]["name"] = "mine:MyAvg"
    summary["spec_digest"] = json_digest(spec["spec"])
    parts |= {"spec.json": json.dumps(spec), "summary.json": json.dumps(summary)}
    packed = {folder.replace("/fedavg/", "/mine-MyAvg/"): parts}
    file.write_bytes(lzma.compress(json.dumps(packed).encode()))
    assert read_packed(file) == packed


@pytest.mark.parametrize("metric", ["best", "last", "last10_mean"])
def test_published_accuracies_that_are_not_those_of_the_rounds_are_refused(metric: str, tmp_path: Path) -> None:
    file, runs = tmp_path / "runs.json.xz", read_packed(ROOT / "docs/results/fedmixcon-cpu/runs.json.xz")
    changed = next(iter(runs.values()))
    summary = json.loads(changed["summary.json"])
    summary["accuracy"][metric] -= 0.2
    changed["summary.json"] = json.dumps(summary)
    file.write_bytes(lzma.compress(json.dumps(runs).encode()))
    with pytest.raises(ArtifactError, match=rf"accuracy\.{metric} is 0\.\d+, by its rounds"):
        read_packed(file)


def test_published_runs_without_their_checksum_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    full, small = (SimpleNamespace(scale=scale, results_folder=lambda name: name) for scale in ("paper", "smoke"))
    file = Path("docs/results/leaderboard/runs.json.xz")
    assert find_published(small) == file
    with pytest.raises(ArtifactError, match=r"runs.json.xz and \S+runs.json.xz.sha256: missing"):
        find_published(full)
    file.parent.mkdir(parents=True)
    file.touch()
    for project in (full, small):
        with pytest.raises(ArtifactError, match=r"^docs/results/leaderboard/runs.json.xz.sha256: missing"):
            find_published(project)
    file.with_name("runs.json.xz.sha256").touch()
    assert find_published(full) == file
