"""label_study: from the user's file to a planned run and its page; wrong input leaves the config unchanged."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fednoise_core as fn
from fednoise_core.data.encoded import find_images
from fednoise_core.data.table import find_pictures, read_frame
from fednoise_core.label_errors.decisions import DECISIONS, data_digest
from workflow_scripts.commands import apply_decisions, label_study
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.output_plans import plan_page
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]


def planned(name: str) -> PlannedRun:
    (run,) = Study(Project(read_yaml("config/config.yaml")), name).runs
    return run


def test_the_documentation_s_arrays_become_a_study(config_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/clean_your_labels.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(code, "docs/clean_your_labels.md", "exec"), {})
    assert "wrong_low" in capsys.readouterr().out
    assert label_study.main(["mine.npz"]) == 0
    output = capsys.readouterr().out
    run = planned("mine")
    assert run.labels_page in output
    assert output.startswith("Classes: 3 (0, 1, 2). Sites: 3 (Lund, Oslo, Turin). Samples: 600\n")
    assert run.labels_page in text
    assert f"The default is {run.spec['train']['rounds']} rounds of {run.spec['train']['epochs']} epochs" in text
    assert "now: snakemake --cores 2 mine" in output
    assert run.spec["dataset"] == {"source": "npz", "path": "mine.npz", "test": {"holdout": 0.1}}
    assert run.spec["partition"] == {"kind": "natural"}
    assert run.spec["noise"] == {"kind": "given"}
    assert read_yaml("config/studies/mine.yaml")["labels"] is True
    study = Study(Project(read_yaml("config/config.yaml")), "mine")
    links = plan_page(study).spec["study"]["label_pages"]
    assert links == {"mine · cross_fitted, seed 0": f"../../{run.labels_page}"}


def various(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def test_labels_without_owners_or_with_a_test_set(config_copy: Path) -> None:
    y, images = np.arange(60) % 3, various(60, 8, 8)
    np.savez("one place.npz", x_train=images, y_train=y, x_test=images, y_test=y)
    assert label_study.main(["one place.npz"]) == 0
    run = planned("one-place")
    assert run.spec["dataset"] == {"source": "npz", "path": "one place.npz", "clean_known": False}
    assert run.spec["partition"] == {"kind": "iid", "clients": 1}
    assert run.spec["train"]["net"] == {"name": "small_cnn", "width": 16.0}


def test_feature_vectors_get_a_linear_net(config_copy: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez("vectors.npz", x_train=draw.normal(0, 1, (60, 5)).astype(np.float32), given=np.arange(60) % 3)
    assert label_study.main(["vectors.npz"]) == 0
    assert planned("vectors").spec["train"]["net"] == "linear"


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_images_become_vectors_by_a_pretrained_net(
    config_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    y, images = np.arange(40) % 2, np.arange(40 * 64, dtype=np.int64).reshape(40, 8, 8) % 251
    if kind == "npz":
        np.savez("mine.npz", x_train=images.astype(np.uint8), given=y)
    for row, image in enumerate(images if kind == "folder" else ()):
        path = config_copy / f"photos/{'ab'[y[row]]}" / f"{row:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype(np.uint8)).save(path)
    data, size = {"npz": (["mine.npz"], 8), "folder": (["photos", "--size", "16"], 16)}[kind]
    assert label_study.main([*data, "--encoder", "{name: resnet18, weights: none.pth}"]) == 2
    assert "none.pth: no such weights file" in capsys.readouterr().err
    monkeypatch.setattr("fednoise_core.nets.encoder.load_encoder", lambda encoder: None)
    monkeypatch.setattr(
        "fednoise_core.nets.encoder.encode_images", lambda x, encoder: np.asarray(x, np.float32).reshape(len(x), -1)
    )
    assert label_study.main([*data, "--encoder", "resnet18"]) == 0
    spec = planned(Path(data[0]).stem).spec
    assert spec["method"]["fit"] == "sums"
    arrays = fn.dataset(spec["dataset"])
    assert arrays.x_train.shape == (36, 1, 1, size * size * (3 if kind == "folder" else 1))
    np.testing.assert_array_equal(np.asarray(find_images(arrays, [])).reshape(36, -1), arrays.x_train.reshape(36, -1))


def test_a_folder_with_a_csv(config_copy: Path) -> None:
    lines = ["file,label,client"]
    for i in range(40):
        path = config_copy / "photos/train" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), i, np.uint8)).save(path)
        lines.append(f"{i}.png,{'cat' if i % 2 else 'dog'},site {i % 4}")
    (config_copy / "photos/labels.csv").write_text("\n".join(lines))
    assert label_study.main(["photos", "--given", "labels.csv", "--size", "16"]) == 0
    spec = planned("photos").spec
    assert spec["dataset"]["given"] == "labels.csv"
    assert spec["dataset"]["size"] == 16
    assert spec["partition"] == {"kind": "natural"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.npz"], "nothing.npz: no such file or folder"),
        (["mine.npz", "--name", "quick"], "config/studies/quick.yaml exists"),
        (["mine.npz", "--name", "a/b"], "--name: expected an id"),
        (["mine.npz", "--name", "table"], "'table' is a rule of the workflow"),
        (["mine.npz", "--encoder", "{name: resnet18"], "--encoder: expected a name or"),
        (["mine.npz", "--encoder", "2020-01-01"], "--encoder: expected a name or"),
        (["mine.npz", "--given", "labels.csv"], "--given is for folders of images"),
        (["mine.npz", "--size", "16"], "--size is for image files"),
        (["table.csv", "--size", "16"], "--size is for image files"),
        (["folder", "--client", "site"], "--client is for tables"),
        (["mine.npz", "--label", "given"], "--label is for tables"),
        (["vectors.npz", "--encoder", "resnet18"], "vectors.npz has feature vectors already"),
    ],
)
def test_wrong_input_leaves_the_config_unchanged(
    config_copy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("fednoise_core.nets.encoder.load_encoder", lambda encoder: None)
    np.savez("mine.npz", x_train=various(30, 8, 8), given=np.arange(30) % 3)
    Path("folder").mkdir()
    table_of().to_csv("table.csv")
    np.savez("vectors.npz", x_train=various(30, 8).astype(float), given=np.arange(30) % 3)
    before = {path: path.read_bytes() for path in sorted((config_copy / "config").rglob("*.yaml"))}
    assert label_study.main(arguments) == 2
    stderr = capsys.readouterr().err
    assert message in stderr
    assert len(stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in sorted((config_copy / "config").rglob("*.yaml"))} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"given": None}, "it has no labels (given or y_train), but x_train, client"),
        ({"given": np.arange(30) % 3 + 1}, "no training image has class 0"),
        ({"given": np.arange(30) % 3 * 2}, "no training image has class 1"),
        ({"given": np.zeros(30, int)}, "classes is 1"),
        ({"names": np.array(["a", "b"])}, "given holds 0..2, but 2 classes by `names` are 0..1"),
        ({"names": np.array(["a", "b", "c"]), "given": np.arange(30) % 3 + 1}, "if they begin at 1, subtract 1"),
        ({"x_train": various(30, 8, 8) / 255}, "x_train is float64"),
        ({"x_train": various(30, 8, 8).astype(np.uint16) * 16}, "images are integers 0..255"),
        ({"x_train": np.full((30, 4), np.nan)}, "x_train holds NaN"),
        ({"x_train": various(30, 3, 16, 16)}, "channels first"),
        ({"client": np.array(["a", "b", "c"] * 10, object)}, "client holds Python objects"),
    ],
)
def test_arrays_that_cannot_be_trained_on_are_refused_at_once(
    config_copy: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    content = {"x_train": various(30, 8, 8), "given": np.arange(30) % 3, "client": np.arange(30) % 2} | change
    np.savez("mine.npz", **{name: array for name, array in content.items() if array is not None})
    assert label_study.main(["mine.npz"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("config/studies/mine.yaml").exists()


def test_unused_arrays_are_named(config_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("mine.npz", x_train=various(30, 8, 8), given=np.arange(30) % 3, site=np.arange(30) % 2)
    assert label_study.main(["mine.npz"]) == 0
    expected = "Classes: 3 (0, 1, 2). Sites: 1 (no client). Samples: 30. Not used: site\n"
    assert capsys.readouterr().out.startswith(expected)


def table_of(n: int = 120) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    y = np.arange(n) % 3
    features = {f"f{k}": np.round(draw.normal(0, 1, n) + 4 * (y == k), 3) for k in range(3)}
    labels = np.array(["cat", "dog", "owl"])[np.where(np.arange(n) % 15 == 0, (y + 1) % 3, y)]
    return pd.DataFrame({**features, "animal": labels, "client": np.array(["Ulm", "Bonn"])[np.arange(n) % 2]})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_from_the_command_to_corrected_data(config_copy: Path, tmp_path_factory: Any, ending: str) -> None:
    """The page shows its pictures, and no other cell of the corrected table changes."""
    table, elsewhere = table_of(), tmp_path_factory.mktemp("elsewhere")
    Image.fromarray(np.full((9, 12, 3), 7, np.uint8)).save(elsewhere / "a.png")
    table["image"] = "a.png"
    file, out = elsewhere / f"mine.{ending}", elsewhere / f"mine-2.{ending}"
    write = {"csv": table.to_csv, "parquet": table.to_parquet}[ending]
    write(file, index=False)
    assert label_study.main([str(file), "--label", "animal"]) == 0
    spec = planned("mine").spec
    assert spec["partition"] == {"kind": "natural"}
    assert spec["train"]["net"] == "linear"
    arrays = fn.dataset(spec["dataset"])
    assert (arrays.n, arrays.names, set(arrays.sites)) == (109, ("cat", "dog", "owl"), {"Ulm", "Bonn"})
    pictures = find_pictures(arrays, [], (96, 96))
    assert pictures is not None
    assert pictures[0].shape == (96, 96, 3)
    assert (pictures[3] == 7).all()
    digest = data_digest(arrays.source_sha256)
    rows = {0: ("dog", "relabel", "cat"), 1: (table["animal"][1], "drop", "owl")}
    lines = [
        f"{row},{row},0,Ulm,{arrays.names.index(old)},{old},{word},{arrays.names.index(label)},{label},{digest}"
        for row, (old, word, label) in rows.items()
    ]
    decided = config_copy / "decisions.csv"
    decided.write_text("\n".join([",".join(DECISIONS), *lines]))
    arguments = ["--decisions", str(decided), "--data", str(file), "--labels", "animal", "--out", str(out)]
    assert apply_decisions.main(arguments) == 0
    corrected = read_frame(out)
    assert corrected["animal"][0] == "cat"
    assert corrected["first_label"].tolist() == table["animal"].drop(1).tolist()
    assert corrected.drop(columns=["animal", "first_label"]).equals(
        table.drop(1).drop(columns="animal").reset_index(drop=True)
    )
    again = fn.dataset(
        {
            "source": "table",
            "path": str(out),
            "label": "animal",
            "image": "image",
            "client": "client",
            "test": {"holdout": 0.1},
        }
    )
    assert again.first is not None
    assert (again.first != again.y_train).sum() <= 1
    assert apply_decisions.main([*arguments[:3], str(out), *arguments[4:-1], str(elsewhere / f"3.{ending}")]) == 2


def write_images(config_copy: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        (config_copy / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), number, np.uint8)).save(config_copy / name)


@pytest.mark.parametrize("sites", [("Ulm/", "Bonn/"), ("",)])
def test_folders_of_sites_and_classes_outside_the_project(
    config_copy: Path, tmp_path_factory: Any, sites: tuple[str]
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "photos"
    write_images(
        elsewhere, [f"{site}{animal}/{i}.png" for site in sites for animal in ("cat", "dog") for i in range(20)]
    )
    assert label_study.main([str(elsewhere), "--size", "8"]) == 0
    spec = planned("photos").spec
    arrays = fn.dataset(spec["dataset"])
    assert arrays.n == 36 * len(sites)
    assert arrays.names == ("cat", "dog")
    assert arrays.sites == (("Bonn", "Ulm") if len(sites) == 2 else ())
    assert all(
        f"/{arrays.names[label]}/" in f"/{path}" for label, path in zip(arrays.y_train, arrays.origin, strict=True)
    )
    path = arrays.origin[0]
    (config_copy / "decisions.csv").write_text(
        f"{','.join(DECISIONS)}\n0,{path},0,x,0,cat,relabel,1,dog,{data_digest(arrays.source_sha256)}\n"
    )
    paths = ["--data", "data/photos-labels.csv", "--out", "data/photos-2.csv"]
    assert apply_decisions.main(["--decisions", "decisions.csv", *paths]) == 0
    assert label_study.main([str(elsewhere), "--name", "second", "--given", "data/photos-2.csv", "--size", "8"]) == 0
    second = fn.dataset(planned("second").spec["dataset"])
    assert (second.first != second.y_train).sum() <= 1


def test_a_csv_beside_its_images(config_copy: Path) -> None:
    write_images(config_copy / "photos", [f"{i}.png" for i in range(40)])
    lines = [f"{i}.png,{'cat' if i % 2 else 'dog'}" for i in range(40)]
    (config_copy / "photos/labels.csv").write_text("\n".join(["file,label", *lines]))
    assert label_study.main(["photos/labels.csv", "--size", "8"]) == 0
    assert fn.dataset(planned("labels").spec["dataset"]).n == 36


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("file,label,site", "Classes: 2 (cat, dog). Sites: 1 (no client). Samples: 40. Not used: site"),
        ("file,label,client", "Classes: 2 (cat, dog). Sites: 1 (Ulm). Samples: 40\n"),
        ("file,class,client", "labels.csv: it has no column label, but file, class, client"),
        (None, "given: labels.csv does not exist"),
    ],
)
def test_columns_of_a_csv(
    config_copy: Path, capsys: pytest.CaptureFixture[str], columns: str | None, message: str
) -> None:
    write_images(config_copy / "photos", [f"{i}.png" for i in range(40)])
    if columns:
        lines = [columns, *(f"{i}.png,{'cat' if i % 2 else 'dog'},Ulm" for i in range(40))]
        (config_copy / "photos/labels.csv").write_text("\n".join(lines))
    label_study.main(["photos", "--given", "labels.csv", "--size", "8"])
    assert message in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (table_of(), [], "label: it has no column 'label', but 'f0'"),
        (
            table_of().rename(columns={"animal": "label", "f1": "city"}).assign(city="x"),
            [],
            "leave it out, encode it, or name it as the owners (owner=, --client)",
        ),
        (table_of().rename(columns={"animal": "label"})[["label"]], [], "it has no column of features"),
        (table_of().mask(lambda cells: cells == "dog"), ["--label", "animal"], "y: no value in row"),
    ],
)
def test_a_table_that_cannot_be_read(
    config_copy: Path, capsys: pytest.CaptureFixture[str], table: pd.DataFrame, arguments: list[str], message: str
) -> None:
    table.to_csv("mine.csv", index=False)
    assert label_study.main(["mine.csv", *arguments]) == 2
    assert message in capsys.readouterr().err
    Path("mine.parquet").write_bytes(b"nothing")
    assert label_study.main(["mine.parquet"]) == 2
    assert "mine.parquet: not readable as .parquet" in capsys.readouterr().err


def test_the_documentation_s_data_frame_becomes_corrected_data(config_copy: Path) -> None:
    text = (ROOT / "docs/clean_your_labels.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    table = table_of().rename(columns={"animal": "diagnosis", "client": "hospital"})
    table.to_csv("mine.csv", index=False)
    Path("decisions.csv").write_text(
        f"{','.join(DECISIONS)}\n3,3,0,Bonn,0,cat,relabel,2,owl,\n5,5,0,x,2,owl,drop,2,owl,\n"
    )
    exec(compile(code, "docs/clean_your_labels.md", "exec"), {"pd": pd, "fn": fn})
    table.loc[3, "diagnosis"] = "owl"
    pd.testing.assert_frame_equal(pd.read_csv("mine-2.csv"), table.drop(5).reset_index(drop=True))
    assert Path("labels.html").is_file()
