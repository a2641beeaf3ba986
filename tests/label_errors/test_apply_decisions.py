"""Decisions change exactly the named labels in the user's npz, CSV or folder, or one message says why not."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from label_run import NAMES, LabelRun, label_run
from PIL import Image

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from fednoise_core.io import safe_cell
from fednoise_core.label_errors.csv_rows import read_rows
from fednoise_core.label_errors.decisions import DECISIONS, Suspect, data_digest
from workflow_scripts.commands import apply_decisions

Row = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> LabelRun:
    return label_run(tmp_path)


def decide(run: LabelRun, source: int, choice: str, label: int | None = None, **cells: Any) -> Row:
    """A row as the page writes it."""
    with np.load(run.folder / "mine.npz") as file:
        old = int(file["given"][source])
    label = old if label is None else label
    row = {
        **{"sample": 0, "source": source, "client": 0, "site": "x", "given": old, "given_name": NAMES[old]},
        **{"decision": choice, "label": label, "label_name": NAMES[label]},
        "data": data_digest(run.arrays.source_sha256),
    }
    return row | cells


def write(path: Path, rows: list[Row]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, DECISIONS, lineterminator="\n")
        table.writeheader()
        table.writerows({key: safe_cell(str(value)) for key, value in row.items()} for row in rows)
    return path


def apply_to(data: Path, rows: list[Row], out: Path, *args: str) -> int:
    decisions = write(out.parent / "decisions.csv", rows)
    return apply_decisions.main(["--decisions", str(decisions), "--data", str(data), "--out", str(out), *args])


def apply(run: LabelRun, rows: list[Row], *args: str) -> int:
    return apply_to(run.folder / "mine.npz", rows, run.folder / "out.npz", *args)


def test_an_npz_is_corrected_row_by_row(run: LabelRun, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(run.folder / "mine.npz") as file:
        before = {name: file[name] for name in file.files}
    to = (int(before["given"][7]) + 1) % 3
    assert apply(run, [decide(run, 7, "relabel", to), decide(run, 8, "keep"), decide(run, 9, "drop")]) == 0
    assert "119 samples; 1 relabelled, 1 dropped, 1 kept, 117 not decided" in capsys.readouterr().out
    with np.load(run.folder / "out.npz") as file:
        assert list(file.files) == [*before, "first_given"]
        stays = np.arange(120) != 9
        for name in ("x_train", "client", "note"):
            np.testing.assert_array_equal(file[name], before[name][stays])
        expected = before["given"].copy()
        expected[7] = to
        np.testing.assert_array_equal(file["given"], expected[stays])
        np.testing.assert_array_equal(file["first_given"], before["given"][stays])
        np.testing.assert_array_equal(file["names"], before["names"])
    spec = {"source": "npz", "path": str(run.folder / "out.npz"), "test": {"holdout": 0.1}}
    assert sources.read_facts(spec)[0] == run.arrays.n - 1  # it can be read again


def accept_all(run: LabelRun) -> int:
    arguments = ["--accept-all", str(run.folder / "suspects.csv"), "--data", str(run.folder / "mine.npz")]
    return apply_decisions.main([*arguments, "--out", str(run.folder / "out.npz")])


def test_accept_all_leaves_out_what_is_out_of_scope(run: LabelRun, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.folder / "suspects.csv"
    table = pd.read_csv(path, keep_default_na=False)
    wrong = int((table["verdict"] == "wrong").sum())
    table["out_of_scope"] = [1.31, 1.31, 1.3] + [0.2] * (len(table) - 3)
    table.to_csv(path, index=False)
    assert accept_all(run) == 0
    output = capsys.readouterr().out
    assert "suspects.csv: 2 with the verdict wrong are out of scope" in output
    assert f"{wrong - 2} relabelled, 0 dropped" in output
    with np.load(run.folder / "out.npz") as file:
        now, before = (file[name][table["source"][:3].astype(int)] for name in ("given", "first_given"))
    assert (now != before).tolist() == [False, False, True]


def test_accept_all_takes_every_verdict_wrong(run: LabelRun) -> None:
    assert accept_all(run) == 0
    with np.load(run.folder / "mine.npz") as file:
        expected = file["given"]
    named = [suspect for suspect in read_rows(run.folder / "suspects.csv", Suspect) if suspect.verdict == "wrong"]
    assert len(named) > 10
    for suspect in named:
        expected[int(suspect.source)] = suspect.proposed
    with np.load(run.folder / "out.npz") as file:
        np.testing.assert_array_equal(file["given"], expected)
        judged = run.arrays.origin
        np.testing.assert_array_equal(file["given"][judged], run.clean[judged])


def test_accept_all_refuses_what_would_not_help_and_drops_instead(
    run: LabelRun, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run.folder / "suspects.csv"
    table = pd.read_csv(path, keep_default_na=False)
    named = table["verdict"] == "wrong"
    table.loc[named, ["p_wrong", "p_proposed"]] = 0.6, 0.3
    table.loc[named.idxmax(), "blank"] = 1  # dropped with the others, although it would not be relabelled
    table.to_csv(path, index=False)
    assert accept_all(run) == 2
    assert "relabelling would not help" in capsys.readouterr().err
    assert not (run.folder / "out.npz").exists()
    out = ["--data", str(run.folder / "mine.npz"), "--out", str(run.folder / "out.npz")]
    assert apply_decisions.main(["--accept-all", str(path), "--drop", *out]) == 0
    assert f"0 relabelled, {named.sum()} dropped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "change", "message"),
    [
        (7, {"data": "0" * 16}, r"line 2: it was decided for other data than .*mine\.npz"),
        (7, {"source": 120}, r"line 2: expected a row of .*mine\.npz, which has 120, got '120'"),
        (7, {"source": "photo.png"}, r"line 2: expected a row of .*, got 'photo.png'"),
        (7, {"decision": "delete"}, "line 2: decision: expected 'keep', 'relabel' or 'drop', got 'delete'"),
        (7, {"label": 3}, r"line 2: 3 .* is not a class of .*mine\.npz"),
        (7, {"label_name": "dog"}, r"'dog' is not a class of .*mine\.npz: <i>cat</i>, =1\+1"),
        (7, {"label": "x"}, "line 2: label: expected a valid integer"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_written(
    run: LabelRun, capsys: pytest.CaptureFixture[str], source: int, change: Row, message: str
) -> None:
    assert apply(run, [decide(run, source, "relabel", 1) | change]) == 2
    stderr = capsys.readouterr().err
    assert len(stderr.splitlines()) == 1
    assert re.search(message, stderr), stderr
    assert not (run.folder / "out.npz").exists()


def test_decisions_are_for_the_labels_that_were_judged(run: LabelRun, capsys: pytest.CaptureFixture[str]) -> None:
    row = decide(run, 7, "keep")
    other_label = (row["given"] + 1) % 3
    assert apply(run, [row | {"given": other_label, "data": ""}]) == 2
    assert (
        f"row 7 of {run.folder / 'mine.npz'} has the label {row['given']} in given, not {other_label}"
        in capsys.readouterr().err
    )
    assert apply(run, [decide(run, 7, "relabel", 0), decide(run, 7, "drop")]) == 2
    assert "line 3: 7 has another decision before" in capsys.readouterr().err
    assert apply(run, [decide(run, 7, "keep")], "--labels", "note") == 2
    assert apply(run, [decide(run, 7, "keep")], "--labels", "names") == 2
    assert "it has no labels of training images 'names'" in capsys.readouterr().err
    assert apply(run, []) == 2
    assert "decisions.csv: it holds no decision" in capsys.readouterr().err
    assert apply(run, [decide(run, 7, "keep")], "--labels", "gvien") == 2
    assert "it has no labels of training images 'gvien'; did you mean 'given'?" in capsys.readouterr().err


def test_a_class_that_would_vanish_is_refused(run: LabelRun, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(run.folder / "mine.npz") as file:
        rows = [decide(run, int(i), "drop") for i in np.flatnonzero(file["given"] == 2)]
    assert apply(run, rows) == 2
    assert "corrected: no training image has class 2" in capsys.readouterr().err
    assert not (run.folder / "out.npz").exists()


def test_a_site_of_a_federation_may_lack_a_class(run: LabelRun) -> None:
    data = run.folder / "mine.npz"
    with np.load(data) as file:
        arrays, stays = {name: file[name] for name in ("x_train", "given", "names")}, file["given"] != 1
    np.savez(data, x_train=arrays["x_train"][stays], given=arrays["given"][stays], names=arrays["names"])
    assert apply(run, [decide(run, 0, "relabel", 0, data="")]) == 0


def test_the_original_is_never_written_over(run: LabelRun, capsys: pytest.CaptureFixture[str]) -> None:
    data = run.folder / "mine.npz"
    for out in (data, run.folder, run.folder / "out.csv"):
        assert apply_to(data, [decide(run, 7, "drop")], out) == 2
        assert f"--out: expected a new file .npz, got {out}" in capsys.readouterr().err


# folders of images


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve photos in two class folders, with a CSV that gives other labels to some."""
    draw = np.random.default_rng(0)
    for i in range(12):
        file = tmp_path / "photos/train" / ("=cat" if i % 2 else "dog") / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(file)
    rows = [("file", "label", "client", "seen by")]
    rows += [(f"{'=cat' if i % 2 else 'dog'}/{i}.png", "'=cat" if i % 3 else "dog", "A", "me, too") for i in range(12)]
    with open(tmp_path / "photos/labels.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return tmp_path / "photos"


def photo(source: str, choice: str, old: str, label: str) -> Row:
    names = ["=cat", "dog"]
    row = {"sample": 0, "source": source, "client": 0, "site": "A", "given": names.index(old), "given_name": old}
    return row | {"decision": choice, "label": names.index(label), "label_name": label, "data": ""}


def arrays_of(photos: Path, **settings: Any) -> Arrays:
    spec = {"source": "imagefolder", "path": str(photos), "size": 8, "clean_known": False, "test": {"holdout": 0.3}}
    return sources.read({**spec, **settings})


def counts(arrays: Arrays) -> np.ndarray:
    """Images of each class, the held-out ones among them."""
    return np.bincount(np.append(arrays.y_train, arrays.y_test))


def test_a_csv_of_labels_is_corrected_and_read_again(photos: Path) -> None:
    before = arrays_of(photos, given="labels.csv")
    data = data_digest(before.source_sha256)
    rows = [photo("dog/0.png", "relabel", "dog", "=cat"), photo("=cat/1.png", "drop", "=cat", "=cat")]
    assert apply_to(photos / "labels.csv", [row | {"data": data} for row in rows], photos / "corrected.csv") == 0
    old, new = ((photos / name).read_text().splitlines() for name in ("labels.csv", "corrected.csv"))
    assert [f"{line},{line.split(',')[1]}," for line in old[3:]] == new[3:]  # what was not decided stays as it is
    with open(photos / "corrected.csv", newline="", encoding="utf-8") as file:
        lines = {row["file"]: row for row in csv.DictReader(file)}
    assert lines["dog/0.png"] == {
        "file": "dog/0.png",
        "label": "'=cat",
        "client": "A",
        "seen by": "me, too",
        "first_label": "dog",
        "drop": "",
    }
    assert lines["=cat/1.png"]["drop"] == "yes"
    after = arrays_of(photos, given="corrected.csv")
    sources_after = [after.source(i) for i in range(after.n)]
    assert "=cat/1.png" not in sources_after
    assert counts(after).tolist() == [8, 3]  # of 8 cats and 4 dogs, a cat is gone and a dog has become one
    position = sources_after.index("dog/0.png") if "dog/0.png" in sources_after else None
    assert position is None or after.names[after.y_train[position]] == "=cat"
    assert after.first is not None
    changed = [after.source(int(i)) for i in np.flatnonzero(after.first != after.y_train)]
    assert changed == ([] if position is None else ["dog/0.png"])


def test_folders_that_are_labels_give_a_csv(photos: Path) -> None:
    assert apply_to(photos, [photo("dog/0.png", "relabel", "dog", "=cat")], photos / "corrected.csv") == 0
    assert counts(arrays_of(photos)).tolist() == [6, 6]
    assert counts(arrays_of(photos, given="corrected.csv")).tolist() == [7, 5]
    assert (photos / "corrected.csv").read_text().splitlines()[:2] == [
        "file,label,first_label",
        "'=cat/1.png,'=cat,'=cat",
    ]


def test_folders_of_sites_need_their_csv(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "train").rename(photos / "Ulm")
    assert apply_to(photos, [photo("dog/0.png", "relabel", "dog", "=cat")], photos / "corrected.csv") == 2
    assert f"{photos}: it has no folder train/. Name the CSV of its labels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (photo("dog/1.png", "keep", "dog", "dog"), "'dog/1.png' is not in"),
        (photo("dog/0.png", "keep", "=cat", "=cat"), "dog/0.png has the label 'dog' in"),
        (photo("dog/0.png", "relabel", "dog", "dog") | {"label_name": "cow"}, "'cow' is not a class of"),
        (photo("dog/0.png", "keep", "dog", "dog") | {"data": "f" * 16}, "it was decided for other data"),
    ],
)
def test_a_wrong_line_for_a_csv_is_named(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: Row, message: str
) -> None:
    assert apply_to(photos / "labels.csv", [row], tmp_path / "out.csv") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
