"""fn.find_label_errors: one call from arrays to the list of suspects; feature vectors as well as images."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fednoise_core as fn
from fednoise_core.api.find_label_errors import take_majority
from fednoise_core.engine.truth import auroc
from fednoise_core.io import SpecError
from fednoise_core.label_errors.files import SITES, SUSPECTS

OWNERS = np.array(["Lund", "Turin", "Oslo"])[np.arange(360) % 3]


def made_data(wrong_share: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(vectors [n, 6] far from zero mean, labels by name, mask of the wrong labels); an eighth is unclear."""
    draw = np.random.default_rng(0)
    clean = draw.integers(0, 3, 360)
    x = 500 + 40 * draw.normal(0, 1, (360, 6))
    x[np.arange(360), clean] += 150
    wrong = draw.random(360) < wrong_share
    return x, np.array(["cat", "dog", "owl"])[np.where(wrong, (clean + 1) % 3, clean)], wrong


def test_feature_vectors_of_several_owners():
    x, y, wrong = made_data()
    x[7], y[7], y[8] = x[8], "cat", "dog"
    x[20], y[20] = 1.0001 * x[23], "owl" if y[23] == "cat" else "cat"  # at one site
    wrong[[7, 8, 20]] = True
    frame = fn.find_label_errors(x, y, OWNERS, progress=False)
    assert set(frame.columns) == {*SUSPECTS, "out_of_scope", "near_copy", "predicted"}
    with pd.option_context("display.width", 80, "display.max_columns", 0):
        header = str(frame.head()).splitlines()[0].split()
    assert {"given_name", "proposed_name", "p_wrong", "site", "sample"} <= set(header)
    assert set(frame.loc[frame["near_copy"], "sample"]) == {20, 23}
    assert set(frame.loc[frame["contradicts"], "sample"]) == {7, 8}
    assert not frame["blank"].any()
    assert sorted(frame["sample"]) == list(range(360))
    assert frame["p_wrong"].is_monotonic_decreasing
    assert (frame["site"] == OWNERS[frame["sample"]]).all()
    assert (frame["given_name"] == y[frame["sample"]]).all()
    assert (frame["proposed"] != frame["given"]).all()
    assert auroc(frame["p_wrong"].to_numpy(), wrong[frame["sample"]]) > 0.97
    sites = frame.attrs["sites"]
    assert [list(site) for site in sites] == [list(SITES)] * 3
    assert [site["site"] for site in sites] == ["Lund", "Oslo", "Turin"]
    for site in sites:
        assert site["wrong_low"] <= wrong[site["site"] == OWNERS].sum() <= site["wrong_high"]


def test_units_of_the_features_do_not_matter():
    """They are standardised; a constant feature stays finite."""
    x, y, _ = made_data()
    first = fn.find_label_errors(np.c_[x, np.full(360, 7.0)], y, progress=False)
    second = fn.find_label_errors(np.c_[1000 * x[:, :3], x[:, 3:] / 1000 + 1, np.full(360, 7.0)], y, progress=False)
    assert {site["site"] for site in first.attrs["sites"]} == {"0"}
    assert (first["sample"].to_numpy()[:20] == second["sample"].to_numpy()[:20]).mean() > 0.9
    np.testing.assert_allclose(first["p_wrong"], second["p_wrong"], atol=0.05)


def test_images_and_a_seed():
    x, y, _ = made_data()
    images = np.repeat(np.clip(x / 4, 0, 255).astype(np.uint8)[:, None, :], 6, 1)
    first, second = (fn.find_label_errors(images, y, OWNERS, seed=seed, progress=False) for seed in (0, 1))
    again = fn.find_label_errors(images, pd.Series(y), pd.Series(OWNERS), seed=0, progress=False)
    assert first.equals(again)
    assert not first.equals(second)


def test_an_annotator_who_is_often_wrong_is_named_first_on_the_page(tmp_path: Path):
    x, y, _ = made_data(0.0)
    annotator = np.array(["Ann", "Bo", "Cy", "Di"])[np.arange(360) // 3 % 4]
    chosen = (annotator == "Cy") & (OWNERS == "Turin")
    y[chosen] = y[np.roll(np.flatnonzero(chosen), 1)]
    frame = fn.find_label_errors(x, y, OWNERS, annotator=pd.Series(annotator), progress=False)
    (finding,) = frame.attrs["findings"]
    assert (finding["site"], finding["kind"]) == ("Turin", "annotator")
    assert "labels by annotator Cy (elsewhere" in finding["text"]
    frame.page(tmp_path / "labels.html")
    assert finding["text"] in (tmp_path / "labels.html").read_text()
    with pytest.raises(SpecError, match="annotator: expected one for each of the 360 samples of x, got 2"):
        fn.find_label_errors(x, y, OWNERS, annotator=["Ann", "Bo"])


def test_votes_of_several_annotators():
    x, y, wrong = made_data(0.0)
    assert not wrong.any()
    draw = np.random.default_rng(1)
    votes = np.repeat(y[:, None], 4, 1).astype(object)
    errs = draw.random((360, 4)) < [0.1, 0.3, 0.5, 0.0]
    votes[errs] = draw.choice(["cat", "dog", "owl"], errs.sum())
    votes[:, 3] = None
    votes[7] = [None, "", "owl", None]
    frame = fn.find_label_errors(x, votes, OWNERS, progress=False)
    names, rows = frame["given_name"].to_numpy(), frame["sample"].to_numpy()
    cast = np.array([sum(bool(vote) for vote in row) for row in votes[rows]])
    for_given = (votes[rows] == names[:, None]).sum(1)
    np.testing.assert_allclose(frame["agreement"], for_given / cast)
    most = np.max([(votes[rows] == name).sum(1) for name in ("cat", "dog", "owl")], 0)
    assert (for_given == most).all()
    first, second, third, nobody = frame.attrs["annotators"]
    assert (first["votes"], third["votes"], nobody) == (359, 360, {"votes": 0, "agreement": None})
    assert first["agreement"] > second["agreement"] > third["agreement"]
    assert auroc(frame["p_wrong"].to_numpy(), names != y[rows]) > 0.97
    assert auroc(-frame["agreement"].to_numpy(), names != y[rows]) < 0.95  # the models know more than the votes


@pytest.mark.parametrize("missing", [-1, np.nan])
def test_votes_by_number_and_ties(missing: float):
    votes = np.array([[2, 1, 1], [0, missing, missing], *[[0, 1, missing]] * 200])
    labels = take_majority(votes)
    assert labels.dtype == np.int64
    assert labels[:2].tolist() == [1, 0]
    assert 70 < labels[2:].sum() < 130
    assert (take_majority(votes) == labels).all()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.ones((4, 3)), [0, 1], "y: expected one for each of the 4 samples of x, got 2"),
        (np.array([[0.0, np.nan]] * 4), [0, 1] * 2, "x: column 1 is nan in row 0, and so are 3 other values"),
        (np.array([[1e300, 1.0]] * 4), [0, 1] * 2, "x holds values beyond"),
        (np.ones((4, 8, 8)), [0, 1] * 2, "x is float64; images are integers"),
        (np.ones((4, 3)), [[0, 1], *[[-1, -1]] * 3], "y: expected a vote for each sample, got none for row 1"),
        (np.ones((4, 3)), [0, 1] * 2, "the same image everywhere"),
        (np.ones((3, 3)), [0, 1, 0], "owner: expected one for each of the 3 samples of x, got 4"),
    ],
)
def test_unusable_arguments_are_named(x: np.ndarray, y: list[int], message: str):
    with pytest.raises(SpecError, match=message):
        fn.find_label_errors(x, y, OWNERS[:4])
