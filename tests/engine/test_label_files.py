"""suspects.csv and sites.csv lead back to the user's own file, row and site; every method writes them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import toy
from PIL import Image

import fednoise_core as fn
from fednoise_core.api.simulate import FinishedRun
from fednoise_core.data.arrays import Arrays
from fednoise_core.io import plain_cell, safe_cell

TRAIN = {"net": {"name": "mlp", "hidden": 16}, "rounds": 8, "fraction": 1.0, "epochs": 1, "batch": 16, "lr": 0.05}
GIVEN, NATURAL = {"kind": "given"}, {"kind": "natural"}
NAMES = ["=1+1", "@dog", "cow"]  # class names as a spreadsheet would run them
SITES = ["-north", "+south", "St. Mary's", "'quoted"]


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def images(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images of three classes, each shown by a bright stripe. No two images are equal."""
    draw = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = draw.integers(0, 90, (n, 8, 8))
    x[np.arange(n), 2 * y + 1] += 150
    return x.astype(np.uint8), y


@pytest.fixture
def npz_file(tmp_path: Path) -> Path:
    x, y = images(240)
    labels = np.where(np.arange(240) % 8 == 0, (y + 1) % 3, y)
    owner = np.array(SITES)[np.random.default_rng(1).integers(0, 4, 240)]
    np.savez(tmp_path / "mine.npz", x_train=x, given=labels, client=owner, names=np.array(NAMES))
    return tmp_path / "mine.npz"


def run_on(data: Arrays, out: Path, partition: dict | None = None, method: str = "fedavg") -> FinishedRun:
    labels = fn.inject(data, GIVEN, seed=0)
    return fn.run(data, labels, fn.partition_of(data, partition or NATURAL, seed=0), method, TRAIN, seed=0, out=out)


@pytest.mark.parametrize("settings", [{}, {"public": 30, "subset": {"train": 90}, "split_seed": 3}])
def test_rows_and_sites_of_the_users_npz(npz_file: Path, tmp_path: Path, settings: dict) -> None:
    data = fn.dataset({"source": "npz", "path": str(npz_file), "test": {"holdout": 0.2}, **settings})
    data.save(tmp_path / "arrays.npz")
    data = Arrays.load(tmp_path / "arrays.npz")
    assert not data.clean_known
    assert not data.test_known
    run_on(data, tmp_path / "out", {**NATURAL, "validation": 0.2})
    rows = read(tmp_path / "out" / "suspects.csv")
    assert len(rows) == data.n  # the validation samples, too
    with np.load(npz_file) as file:
        for row in rows:
            source = int(row["source"])
            np.testing.assert_array_equal(data.x_train[int(row["sample"])], file["x_train"][source])
            assert int(row["given"]) == file["given"][source]
            assert plain_cell(row["site"]) == file["client"][source]
            assert plain_cell(row["given_name"]) == NAMES[file["given"][source]]
            assert plain_cell(row["proposed_name"]) == NAMES[int(row["proposed"])]
    assert [plain_cell(row["site"]) for row in read(tmp_path / "out" / "sites.csv")] == sorted(SITES)
    for name in ("suspects.csv", "sites.csv"):
        with open(tmp_path / "out" / name, newline="", encoding="utf-8") as file:
            assert not any(cell[:1] in "=+-@\t\r\n" for line in csv.reader(file) for cell in line)


def test_cells_that_a_spreadsheet_would_run() -> None:
    for text in ("=1+1", "@SUM(A1)", "\tx", "＝1", "'=1", "''"):
        assert safe_cell(text) == f"'{text}"
        assert plain_cell(safe_cell(text)) == text
    for text in ("a=1", "", "7", "St. Mary's", "'quoted'"):
        assert plain_cell(text) == text


def picture(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images in folders of sites, labels in a CSV, an eighth of them wrong; the clean labels are unknown."""
    x, y = images(120)
    lines = ["file,label,client"]
    for k in range(120):
        name = f"camera {k % 3}/{k:03}.png"
        picture(tmp_path / "photos" / "train" / name, x[k])
        lines.append(f"{name},{('cat', 'dog', 'owl')[(y[k] + (k % 8 == 0)) % 3]},{'=ward' if k % 2 else 'B 7'}")
    (tmp_path / "photos" / "labels.csv").write_text("\n".join(lines))
    return tmp_path / "photos"


def spec_of(photos: Path, **settings) -> dict:
    return {"source": "imagefolder", "path": str(photos), "channels": 1, "given": "labels.csv", **settings}


def test_an_image_folder_without_truth(photos: Path, tmp_path: Path) -> None:
    data = fn.dataset(spec_of(photos, clean_known=False, test={"holdout": 0.25}, subset={"train": 60}))
    assert data.names == ("cat", "dog", "owl")
    assert data.sites == ("=ward", "B 7")
    assert (data.n, data.given, data.clean_known, data.test_known) == (60, {}, False, False)
    run = run_on(data, tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["test_known"] is summary["clean_known"] is False
    assert summary["diagnostics"]["noise_rate"] is summary["diagnostics"]["suspects_precision"] is None
    assert "agreement with given labels" in repr(run)
    rows = read(tmp_path / "out" / "suspects.csv")
    assert len(rows) == 60
    for row in rows:
        k = int(Path(row["source"]).stem)
        assert row["source"] == f"camera {k % 3}/{k:03}.png"
        assert row["given_name"] == ("cat", "dog", "owl")[(k % 3 + (k % 8 == 0)) % 3]
        assert row["site"] == ("'=ward" if k % 2 else "B 7")


def test_owners_alone_may_come_from_the_csv(photos: Path) -> None:
    lines = (photos / "labels.csv").read_text().splitlines()
    (photos / "labels.csv").write_text("\n".join(",".join(line.split(",")[::2]) for line in lines))
    data = fn.dataset(spec_of(photos, clean_known=False, test={"holdout": 0.25}))
    assert data.names == ("camera 0", "camera 1", "camera 2")  # folders are labels again
    assert data.sites == ("=ward", "B 7")
    assert set(data.client.tolist()) == {0, 1}


def test_numbers_of_owners_stay_numbers(npz_file: Path) -> None:
    with np.load(npz_file) as file:
        arrays = {name: file[name] for name in file.files}
    numbers, texts = ((), ("7", "12")), (("012", "7"), ("012", "7"))
    for ids, (sites, names) in (([12, 7], numbers), (["12", "7"], numbers), (["012", "7"], texts)):
        np.savez(npz_file, **{**arrays, "client": np.array(ids)[np.arange(240) % 2]})
        data = fn.dataset({"source": "npz", "path": str(npz_file), "test": {"holdout": 0.2}})
        assert data.sites == sites
        partition = fn.partition_of(data, NATURAL, seed=0)
        assert partition.sites == names
        assert fn.partition_of(data, {"kind": "iid", "clients": 2}, seed=0).sites == ("0", "1")


# the models that judge


ALL = [0, 1, 3, 4, 5, 6, 7]  # clients of the toy world that hold samples


@pytest.mark.parametrize("name", ["fedavg", "ditto", "fedbn", "coteaching", "centralised", "feddpcont", "dividemix"])
def test_every_site_is_judged_whatever_the_headline_is(name: str) -> None:
    run = toy.play(name, rounds=12, lr=0.1)
    assert [site_labels.site for site_labels in run.outcome.suspects] == ALL
    assert [len(site_labels.samples) for site_labels in run.outcome.suspects] == [toy.SIZES[site] for site in ALL]
    for site_labels in run.outcome.suspects:
        a, b = toy.client_bounds(site_labels.site)
        assert site_labels.samples.tolist() == list(range(a, b))
    assert run.summary["diagnostics"]["suspects_auroc"] > 0.5


@pytest.mark.parametrize("name", ["local", "fedmd"])
def test_a_model_of_ones_own_that_knows_nothing_is_not_asked(name: str) -> None:
    run = toy.play(name, rounds=12, lr=0.1, fraction=1.0, net={"name": "mlp", "hidden": 6})
    sites = [site_labels.site for site_labels in run.outcome.suspects]
    assert set(sites) <= set(ALL)
    assert {0, 5} <= set(sites)


def test_a_rate_that_a_method_was_told_is_not_named_at_every_site() -> None:
    run = toy.play("coteaching", method={"forget_rate": 0.4}, rounds=12, lr=0.1)
    shares = {site_labels.site: float((site_labels.p_wrong > 0.5).mean()) for site_labels in run.outcome.suspects}
    noisy = np.mean([shares[site] for site in toy.NOISY])
    assert noisy > 2 * np.mean([shares[site] for site in (0, 4, 7)])
