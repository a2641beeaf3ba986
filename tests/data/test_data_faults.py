"""Mistakes in users' own data: each is one error that names the file and says what to do."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from toy_data import clothing, photo_table, photos, picture, toy

from fednoise_core import io
from fednoise_core.data import sources
from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.steps import download

N = 40


def npz(path: Path, **change) -> dict[str, str]:
    """Write an npz with four classes and these changes; return its settings."""
    content = toy((6, 7, 3), N, 10, classes=4) | change
    np.savez(path / "mine.npz", **{name: array for name, array in content.items() if array is not None})
    return {"source": "npz", "path": str(path / "mine.npz")}


def grey(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.zeros((40, 6, 7, 3))}, r"x_train is float64; images are integers 0\.\.255"),
        ({"x_test": np.full((10, 6, 7, 3), 256)}, r"x_test holds 256\.\.256"),
        ({"x_test": np.zeros((10, 6, 6, 3), np.uint8)}, "x_test has images"),
        ({"y_train": np.zeros(40)}, "y_train is float64; integers are needed"),
        ({"y_train": np.zeros(39, int)}, r"y_train has shape \(39,\)"),
        ({"y_train": np.zeros((40, 1), int)}, r"y_train has shape \(40, 1\)"),
        ({"y_test": np.full(10, -1)}, r"y_test holds -1\.\.-1"),
        ({"client": np.zeros(4, int)}, "client has shape"),
        ({"names": np.array(["a", "b"])}, r"npz: y_train holds 0\.\.3, but 2 classes by `names`"),
        ({"x_train": None, "images": grey(N, 8, 8)}, r"npz: it has no x_train, but y_train, .*images"),
        ({"y_train": None}, r"npz: it has no labels \(given or y_train\), but x_train"),
        ({"y_test": None}, "it has no y_test"),
        ({"given": np.array([{}] * 40)}, "given holds Python objects; numbers or texts"),
        ({"x_train": grey(N, 3, 8, 8), "x_test": grey(10, 3, 8, 8)}, r"channels first.*x_train\.transpose\(0, 2, 3"),
        ({"x_train": grey(N, 1, 8, 8), "x_test": grey(10, 1, 8, 8)}, "channels first"),
        ({"x_train": grey(N, 8, 8, 0), "x_test": grey(10, 8, 8, 0)}, r"x_train has shape \(40, 8, 8, 0\): .*no pixel"),
        ({"x_train": np.array(3)}, r"x_train has shape \(\), not"),
        ({"x_test": np.array(3)}, r"x_test has shape \(\), not"),
        ({"x_train": np.full((N, 6, 7, 3), np.nan)}, r"x_train holds NaN .* at \[0, 0, 0, 0\]; images are integers"),
        ({"names": np.array("cat")}, r"names is .*\[\]; a vector of texts"),
        ({"names": np.arange(4)}, "names is int64"),
        ({"names": np.array(["a", "b", "b", "c"])}, "names: 'b' comes twice"),
        ({"names": np.array(["a", "b\nc", "d", "e"])}, r"class name 'b\\nc'.*one line"),
        ({"y_train": np.arange(N) % 3, "y_test": np.full(10, 2**40)}, rf"{2**40 + 1} classes .*in y_test, but 40 tr"),
        ({"y_train": np.full(N, 2**63, np.uint64)}, r"y_train holds .*count from 0"),
        ({"y_train": np.arange(N) % 4 + 1, "y_test": np.arange(10) % 4 + 1}, "no training image has class 0 .*subtr"),
        ({"y_train": np.arange(N) % 4 // 2 * 2}, r"mine\.npz: no training image has class 1 of 0\.\.3"),
        ({"y_train": np.arange(N) % 3, "names": np.array(list("abcd"))}, r"no training image has class 3 \('d'\)"),
        ({name: array[:1] for name, array in toy((6, 7, 3)).items()}, "classes"),
        ({"given_\n": np.arange(N) % 4}, r"key of given '\\n'"),
    ],
)
def test_arrays_that_cannot_be_right_are_refused_by_name(tmp_path, change, message):
    spec = npz(tmp_path, **change)
    with pytest.raises(ArtifactError, match=message) as caught:
        sources.read(spec)
    assert "mine.npz" in str(caught.value)


@pytest.mark.parametrize(("descr", "filling"), [("<f4", 1 << 20), ("<U0", 0)])
def test_headers_that_lie_are_refused(tmp_path, descr, filling):
    """A header of a megabyte is not read to its end. Elements of zero bytes are refused, too."""
    text = repr({"descr": descr, "fortran_order": False, "shape": (10**13,)}).encode() + b" " * filling + b"\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text)
    with pytest.raises(ArtifactError) as caught:
        io.read_npz(tmp_path / "x.npz", lambda name: True)
    assert "pickle" not in str(caught.value)


def test_a_file_that_is_no_npz_is_told_what_one_is(tmp_path):
    (tmp_path / "mine.npz").write_text("x_train,y_train\n1,2\n")
    for function in (sources.read_facts, sources.read):
        with pytest.raises(ArtifactError, match=r"mine\.npz: damaged.*zip archive of arrays, as np\.savez") as caught:
            function({"source": "npz", "path": str(tmp_path / "mine.npz")})
        assert "pickle" not in str(caught.value)


def test_nothing_is_unpacked_that_cannot_fit(tmp_path, monkeypatch):
    """An array of 10**15 bytes by its header, and labels that are not as many as the images."""
    spec = npz(tmp_path)
    monkeypatch.setattr(np, "load", None)  # would unpack
    with zipfile.ZipFile(tmp_path / "mine.npz", "a") as archive, archive.open("x_public.npy", "w") as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 1000, 1000)}
        )
    with pytest.raises(ArtifactError, match=r"mine\.npz: its arrays need 1000000\.0 GB, .* for x_public .* may take"):
        sources.read(spec)
    with pytest.raises(ArtifactError, match=r"mine\.npz: given has shape \(41,\), and x_train has 40 images"):
        sources.read(npz(tmp_path, given=np.zeros(41, int)))


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/job/step", {"job/memory.max": "6000", "job/step/memory.max": "max"}),  # version 2, the limit is above
        ("0::/", {"memory.max": "6000"}),  # as a container sees it
        ("4:memory:/docker/1f\n0::/", {"memory/memory.limit_in_bytes": "6000"}),  # version 1, of a container
        ("4:memory:/docker/1f", {"memory/docker/1f/memory.limit_in_bytes": "6000"}),
    ],
)
def test_the_memory_limit_of_a_container_counts(tmp_path, monkeypatch, groups, limits):
    spec = npz(tmp_path)  # of 6,350 bytes
    for file, text in {"proc/self/cgroup": groups, "proc/meminfo": "MemAvailable: 9999 kB", **limits}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"{text}\n")
    monkeypatch.setattr(io, "PROC", tmp_path / "proc")
    monkeypatch.setattr(io, "CGROUPS", tmp_path)
    with pytest.raises(ArtifactError, match=r"its arrays need .* This process may take"):
        sources.read(spec)
    for file in limits:
        (tmp_path / file).write_text("7000\n")
    sources.read(spec)


def test_more_classes_than_images_are_named_before_any_job(tmp_path):
    spec = npz(tmp_path) | {"classes": 10**6}
    for function in (sources.read_facts, sources.read):
        with pytest.raises(ArtifactError, match=r"mine\.npz: 1000000 classes by the setting `classes`, but 40 train"):
            function(spec)
    with pytest.raises(ArtifactError, match="no training image has class 4"):
        sources.read(spec | {"classes": 5})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"std": [0.0]}, r"dataset\.std\[0\]"),
        ({"mean": [float("inf")]}, r"dataset\.mean\[0\]"),
        ({"tests": 3}, r"dataset\.tests: unknown"),
        ({"classes": "ten"}, r"dataset\.classes"),
        ({"clean_known": 1}, r"dataset\.clean_known"),
        ({"subset": {"train": 0}}, r"dataset\.subset\.train"),
        ({"subset": 7}, r"dataset\.subset: "),
        ({"public": {"dataset": "mnist"}}, r"dataset\.public: the key 'n'"),
        ({"path": ["a"]}, r"dataset\.path"),
    ],
)
def test_a_wrong_setting_is_named_in_python_too(tmp_path, setting, message):
    with pytest.raises(SpecError, match=message):
        sources.read(npz(tmp_path) | setting)


# image folders


@pytest.fixture
def folder(tmp_path):
    photo_table(photos(tmp_path / "photos"))
    return tmp_path / "photos"


def spec_of(folder: Path, **settings) -> dict[str, str]:
    return {"source": "imagefolder", "path": str(folder), "given": "labels.csv", **settings}


def test_links_are_followed_only_to_images_inside(folder, tmp_path):
    cat = folder / "train" / "cat"
    (cat / "9.png").symlink_to(folder / "test" / "cat" / "8.png")
    table = (folder / "labels.csv").read_text()
    (folder / "labels.csv").write_text(table + "\ncat/9.png,cat,0")
    assert sources.read(spec_of(folder)).n == 9
    picture(tmp_path / "elsewhere" / "1.png", 10)
    for link, target in ((cat / "x.png", tmp_path / "elsewhere" / "1.png"), (cat / "more", tmp_path / "elsewhere")):
        link.symlink_to(target)
        with pytest.raises(ArtifactError, match=rf"{link}: a link to .*elsewhere.*copy what it leads to"):
            sources.read(spec_of(folder))
        link.unlink()
    shutil.move(folder / "train" / "dog", tmp_path / "dog")
    (folder / "train" / "dog").symlink_to(tmp_path / "dog")
    with pytest.raises(ArtifactError, match="train/dog: a link to"):
        sources.read(spec_of(folder))


def test_an_image_beside_the_class_folders_is_named(folder):
    picture(folder / "train" / "lost.png", 3)
    with pytest.raises(ArtifactError, match=r"train/lost\.png: an image beside the class folders"):
        sources.read(spec_of(folder))


def test_a_class_without_training_images_is_named(folder):
    spec = {"source": "imagefolder", "path": str(folder)}
    with pytest.raises(ArtifactError, match=r"train: no training image has class 2 \('emu'\)"):
        sources.read(spec)
    assert sources.read(spec_of(folder)).classes == 3  # some photos are given the label


@pytest.mark.parametrize("name", ["../outside.csv", "sub/../../outside.csv", "/etc/labels.csv"])
def test_the_table_lies_below_the_folder(folder, tmp_path, name):
    shutil.copy(folder / "labels.csv", tmp_path / "outside.csv")
    (folder / "sub").mkdir()
    for function in (sources.read, sources.list_files):
        with pytest.raises(SpecError, match=r"imagefolder: given: .* leads out of .*photos"):
            function(spec_of(folder, given=name))


# Clothing1M, published data, and the command


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("noisy_label_kv.txt", "images/0/0/0,0.jpg 14", r"noisy_label_kv\.txt, line 1: .* class 0\.\.13"),
        ("noisy_label_kv.txt", "images/0/0/0,0.jpg", r"noisy_label_kv\.txt, line 1"),
        ("noisy_train_key_list.txt", "images/none.jpg", r"images/none\.jpg has no label in noisy_label_kv\.txt"),
        ("noisy_train_key_list.txt", "", "names no image"),
        ("noisy_label_kv.txt", "images/0/0/0,0.jpg " + "1" * 5000, r"noisy_label_kv\.txt, line 1"),
        ("noisy_train_key_list.txt", "../secret.jpg", "secret.jpg has no label"),
        ("category_names_eng.txt", "a\n\udcff\n", r"category_names_eng\.txt: not UTF-8 at byte 2"),
    ],
)
def test_lists_of_clothing1m_that_do_not_fit_are_named(tmp_path, name, text, message):
    root = clothing(tmp_path / "clothing1m")
    (root / name).write_text(text, errors="surrogateescape")
    with pytest.raises(ArtifactError, match=message):
        sources.read({"source": "clothing1m", "path": str(root), "size": 8})


def test_the_command_says_it_in_one_line(tmp_path, capsys):
    spec = npz(tmp_path, names=np.array("cat"))
    spec_text = f'{{"source": "npz", "path": "{spec["path"]}"}}'
    assert download.main(["--spec", spec_text, "--out", str(tmp_path / "out.npz")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("download: ")
    assert "mine.npz: names is" in line
    with pytest.raises(SystemExit, match="2"):
        download.main(["--spec", "[]", "--out", str(tmp_path / "out.npz")])
    assert "neither JSON nor a JSON file" in capsys.readouterr().err
