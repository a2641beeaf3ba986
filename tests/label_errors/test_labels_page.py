"""labels.html: one file without network, bounded, of the run's own data; only its own script and style may run."""

import base64
import csv
import dataclasses
import hashlib
import html
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_page import Page
from label_run import NAMES, SITES, LabelRun, label_run
from PIL import Image

from fednoise_core.io import write_json
from fednoise_core.label_errors.csv_rows import Site, read_rows
from fednoise_core.label_errors.decisions import Suspect
from fednoise_core.label_errors.files import SITES as SITE_COLUMNS
from fednoise_core.label_errors.files import SUSPECTS, write_suspects
from fednoise_core.label_errors.thumbnails import FEW, PER_SHEET, SHARP, SMALL, pack_sheets, shown_images
from workflow_scripts.steps import labels_page


@pytest.fixture
def run(tmp_path: Path) -> LabelRun:
    return label_run(tmp_path)


def page_of(run: LabelRun, *args: str) -> str:
    out = run.folder / "labels.html"
    assert labels_page.main([*run.arguments(), *args, "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


def data_of(text: str) -> dict[str, Any]:
    return json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[0])


def suspects_of(data: dict[str, Any]) -> list[list[Any]]:
    """The rows of the list. The other rows are the random sample."""
    return data["rows"][: data["listed"]]


def test_nothing_comes_from_outside_and_only_its_own_script_may_run(run: LabelRun) -> None:
    text = page_of(run, "--title", "<script>alert(1)</script>")
    page = Page(text)  # also: every tag closes, so no name has opened one
    assert set(page.refs) == {"data:,"}
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy or f"{tag}-src 'sha256-{digest}'" in policy
    assert "i" not in page.tags
    assert "b" not in page.tags
    assert page.tags.count("script") == 1 + 1 + len(re.findall('id="sheet', text))
    assert "http" not in re.sub(r"<script.*?</script>", "", text, flags=re.S).replace("http-equiv", "")
    assert not re.search(
        r"\b(fetch|XMLHttpRequest|import|eval|innerHTML)\b", re.findall("<script>(.*)</script>", text, re.S)[0]
    )


def test_the_list_holds_wrong_and_check_in_order_of_suspicion(run: LabelRun) -> None:
    text = page_of(run)
    data = data_of(text)
    assert data["classes"] == list(NAMES)
    assert [name for _, name in data["sites"]] == sorted(SITES)
    with open(run.folder / "suspects.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["verdict"] != "keep"]
    assert 20 < len(rows) < run.arrays.n
    assert [row[0] for row in suspects_of(data)] == [int(row["sample"]) for row in rows]
    assert [data["verdicts"][row[7]] for row in suspects_of(data)] == [row["verdict"] for row in rows]
    assert f"All {len(rows)} labels with the verdict wrong or check, or of a kind below" in text


def test_limits_keep_the_most_suspect_and_are_stated(run: LabelRun) -> None:
    everything = suspects_of(data_of(page_of(run)))
    text = page_of(run, "--per-site", "4", "--most", "10")
    rows = suspects_of(data_of(text))
    assert len(rows) == 10
    per_site = [sum(row[2] == site for row in rows) for site in range(3)]
    assert max(per_site) == 4
    for site in range(3):
        site_rows = [row for row in everything if row[2] == site]
        assert [row for row in rows if row[2] == site] == site_rows[: per_site[site]]
    assert f"The 10 most suspect of {len(everything)} labels" in text
    assert "at most 4 of a site and 10 in all" in text


def test_a_random_sample_of_each_site_does_not_depend_on_suspicion(
    run: LabelRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fednoise_core.label_errors.page.RANDOM", 12)
    drawn = {(row[2], row[0]): row[8] for row in data_of(page_of(run))["rows"] if row[8]}
    for site in range(3):
        assert sorted(place for (drawn_site, _), place in drawn.items() if drawn_site == site) == list(range(1, 13))
    verdicts = {row[0]: row[7] for row in data_of(page_of(run))["rows"]}
    assert {verdicts[sample] for _, sample in drawn} >= {0, 2}
    path = run.folder / "suspects.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *reversed(lines)]) + "\n")
    again = {(row[2], row[0]): row[8] for row in data_of(page_of(run))["rows"] if row[8]}
    assert again == drawn


def test_copies_blank_and_strange_images_are_listed_whatever_the_models_think(run: LabelRun) -> None:
    unsuspected = [suspect for suspect in read_rows(run.folder / "suspects.csv", Suspect) if suspect.verdict == "keep"]
    first, blank = unsuspected[0], unsuspected[1]
    second = next(suspect for suspect in unsuspected[2:] if suspect.given != first.given)
    images = np.array(run.arrays.x_train)
    images[second.sample] = images[first.sample]
    images[blank.sample] = 9
    arrays = dataclasses.replace(run.arrays, x_train=images)
    near_copy, strange, ordinary = (suspect.sample for suspect in unsuspected[-3:])
    scope, copied = np.full(arrays.n, 0.1), np.zeros(arrays.n, bool)
    scope[strange], scope[ordinary], copied[[near_copy, strange]] = 1.4, 1.2, True  # without a right label, copy or not
    new_columns = [{"out_of_scope": scope[site.samples], "near_copy": copied[site.samples]} for site in run.sites]
    sites = [dataclasses.replace(site, columns=columns) for site, columns in zip(run.sites, new_columns, strict=True)]
    write_suspects(run.folder / "suspects.csv", sites, arrays, run.labels.noisy, arrays.sites)
    text = page_of(run)
    data = data_of(text)
    kinds = {row[0]: row[9] for row in suspects_of(data) if row[9]}
    assert kinds == {first.sample: 1, second.sample: 1, blank.sample: 2, near_copy: 3, strange: 4}
    assert data["kinds"] == ["contradicting copy", "blank image", "contradicting near copy", "out of scope"]
    assert f"{32 * run.arrays.n / 1000:.0f} kB here" in text


def test_systematic_errors_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = label_run(tmp_path, n=300)
    assert "Systematic errors" not in page_of(run)
    new_columns = [{"near_copy": (site.site == 2) & (np.arange(len(site.samples)) // 30 == 1)} for site in run.sites]
    sites = [dataclasses.replace(site, columns=columns) for site, columns in zip(run.sites, new_columns, strict=True)]
    write_suspects(run.folder / "suspects.csv", sites, run.arrays, run.labels.noisy, run.arrays.sites)
    text = page_of(run)
    first, last = (run.arrays.source(run.sites[2].samples[row]) for row in (30, 59))
    message = (
        f"{SITES[2]}: 30 of 30 samples from row {first} to {last} are copies of others with another label. By accident:"
    )
    assert message in capsys.readouterr().out
    assert message in html.unescape(text)
    assert text.index('<h2 id="findings">Systematic errors') < text.index('id="grid"') < text.index('id="sites"')


def test_pictures_are_the_images_that_were_judged(run: LabelRun) -> None:
    text = page_of(run)
    data, side = data_of(text), run.arrays.x_train.shape[1]
    sheet, *_ = re.findall(r'<script type="text/plain" id="sheet\d+">(.*?)</script>', text)
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet))))
    for i, row in enumerate(data["rows"][:PER_SHEET]):
        y, x = i // data["across"] * side, i % data["across"] * side
        np.testing.assert_array_equal(picture[y : y + side, x : x + side], run.arrays.x_train[row[0]])


@pytest.mark.parametrize("shape", [(9, 5), (12, 40, 3), (100, 70, 3), (20, 20, 4)])
def test_pictures_of_any_shape_are_small_squares(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 255, (3, *shape), dtype=np.uint8)
    packed = pack_sheets(iter(images), 3, max(shape[:2]))
    assert packed.side == min(max(shape[:2]), 96)
    assert packed.type == ("image/png" if max(shape[:2]) <= SHARP else "image/jpeg")
    picture = Image.open(io.BytesIO(base64.b64decode(packed.texts[0])))
    assert picture.size == (10 * packed.side, packed.side)


def test_feature_vectors_are_shown_as_grey_cells() -> None:
    packed = pack_sheets(iter(np.array([[0.0, 1.0, 2.0]], np.float32).reshape(1, 1, 1, 3)), 1, 1)
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(packed.texts[0]))))[: packed.side, : packed.side]
    assert packed.side == SHARP
    assert picture[2, 2] < 20
    assert picture[-3, 2] > 235


def test_many_large_pictures_are_smaller_and_decoded_sheet_by_sheet() -> None:
    packed = pack_sheets(itertools.repeat(np.zeros((100, 100), np.uint8)), FEW + 1, 100)
    assert (packed.side, len(packed.texts)) == (SMALL, FEW // PER_SHEET + 1)


def test_replaced_images_are_shown_as_training_saw_them(run: LabelRun) -> None:
    donor = np.full((2, 8, 8), 7, np.uint8)
    labels = dataclasses.replace(run.labels, replaced=np.array([3]), donor=np.array([1]))
    with_donor = list(shown_images(run.arrays, labels, donor, [2, 3]))
    np.testing.assert_array_equal(with_donor[0], run.arrays.x_train[2])
    assert (with_donor[1] == 7).all()
    assert (next(shown_images(run.arrays, labels, None, [3])) == 128).all()


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        ({"accuracy": {"last": 0.8321}, "test_known": False}, "the models agree with 83.2 % of the given labels that"),
        ({"accuracy": {"last": 0.4321}, "test_known": False}, "With photographs a pretrained net finds more"),
        ({"accuracy": {"last": 0.4}}, "Here the accuracy is 40.0 % on test images."),
        ({"accuracy": {"last": None}}, None),
    ],
)
def test_the_accuracy_stands_beside_the_rule_that_needs_it(
    run: LabelRun, summary: dict[str, Any], sentence: str | None
) -> None:
    write_json(run.folder / "summary.json", summary)
    text = page_of(run)
    assert ("below 50 %" in text) == (sentence is not None)
    assert (sentence or "") in text


def test_a_run_that_judged_nothing_says_so(run: LabelRun) -> None:
    for name, columns in (("suspects.csv", SUSPECTS), ("sites.csv", SITE_COLUMNS)):
        (run.folder / name).write_text(",".join(columns) + "\n")
    text = page_of(run)
    assert "No label could be judged" in text
    assert "<script" not in text


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("suspects.csv", "sample,", "simple,", "suspects.csv, line 2: sample: "),
        ("suspects.csv", "\n", "\n9999", "is not in the arrays and labels of this run"),
        ("sites.csv", "\n", "\nx", "sites.csv, line 2: client: expected a valid integer"),
        ("suspects.csv", ",wrong", ",wrnog", "verdict: expected 'wrong', 'check' or 'keep', got 'wrnog'"),
        ("suspects.csv", ",0.9", ",1.9", "p_wrong: "),
        ("sites.csv", "\n0,", "\n7,", "client 0 is not in sites.csv"),
    ],
)
def test_files_of_another_run_are_refused(
    run: LabelRun, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, message: str
) -> None:
    text = (run.folder / file).read_text()
    assert old in text
    (run.folder / file).write_text(text.replace(old, new, 1))
    out = run.folder / "labels.html"
    assert labels_page.main([*run.arguments(), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_labels_of_another_run_are_refused(run: LabelRun, capsys: pytest.CaptureFixture[str]) -> None:
    dataclasses.replace(run.labels, noisy=(run.labels.noisy + 1) % 3).save(run.folder / "labels.npz")
    assert labels_page.main([*run.arguments(), "--out", str(run.folder / "labels.html")]) == 2
    assert "is not in the arrays and labels of this run" in capsys.readouterr().err


def test_a_site_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert labels_page.main(["--site", str(tmp_path / "nope"), "--out", str(tmp_path / "labels.html")]) == 2
    assert f"--site: {tmp_path / 'nope'}: no such folder" in capsys.readouterr().err


def test_readers_give_back_what_runs_write(run: LabelRun) -> None:
    suspects, sites = read_rows(run.folder / "suspects.csv", Suspect), read_rows(run.folder / "sites.csv", Site)
    assert len(suspects) == run.arrays.n
    assert [row.site for row in sites] == sorted(SITES)
    assert {row.given_name for row in suspects} == set(NAMES)
    assert [row.p_wrong for row in suspects] == sorted((row.p_wrong for row in suspects), reverse=True)
    assert all(row.wrong_low < row.wrong < row.wrong_high for row in sites)
