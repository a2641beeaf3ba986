import json
import shutil

import numpy as np
import pytest
from PIL import Image
from toy_data import clothing, photo_table, photos, picture, toy

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.images import ImageFiles
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.steps import download


def content(n: int = 40, m: int = 10) -> dict[str, np.ndarray]:
    return toy((6, 7, 3), n, m, classes=4)


def write(path, **arrays) -> dict[str, str]:
    np.savez(path, **arrays)
    return {"source": "npz", "path": str(path)}


# npz


def test_an_npz_is_read_with_given_labels_owners_and_names(tmp_path):
    toy_data = content()
    labels, client = (toy_data["y_train"] + 1) % 4, np.arange(40) // 8
    optional = {"given": labels, "client": client, "names": np.array(list("abcd")), "other": np.zeros(3)}
    spec = write(tmp_path / "mine.npz", **toy_data, **optional)
    arrays = sources.read(spec)
    np.testing.assert_array_equal(arrays.x_train, toy_data["x_train"])
    np.testing.assert_array_equal(arrays.y_train, toy_data["y_train"])
    np.testing.assert_array_equal(arrays.given["given"], labels)
    np.testing.assert_array_equal(arrays.client, client)
    assert (arrays.classes, arrays.names, arrays.clean_known) == (4, ("a", "b", "c", "d"), True)
    assert sources.read_facts(spec) == (
        40,
        4,
        arrays.x_train.shape[1:3],
    )
    assert sources.list_files(spec) == [tmp_path / "mine.npz"]
    x = toy_data["x_train"] / 255
    np.testing.assert_allclose(arrays.mean, x.mean((0, 1, 2)), atol=1e-4)
    np.testing.assert_allclose(arrays.std, x.std((0, 1, 2)), atol=1e-4)
    part = sources.read({**spec, "subset": {"train": 20, "test": 4}, "public": 8})
    assert (part.n, len(part.client), len(part.given["given"]), len(part.x_public)) == (20, 20, 20, 8)
    assert sources.read_facts({**spec, "subset": {"train": 20}})[0] == 20
    assert sources.read_facts({**spec, "public": 8})[0] == 32


def test_a_path_is_looked_up_in_the_data_root_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    write(tmp_path / "root" / "mine.npz", **content())
    spec = {"source": "npz", "path": "mine.npz"}
    assert sources.read(spec, ["root"]).n == 40
    with pytest.raises(SpecError, match=r"npz: path: mine\.npz does not exist \(looked for mine\.npz, .*nowhere"):
        sources.read_facts(spec, ["nowhere"])
    with pytest.raises(SpecError, match="dataset npz: path is missing"):
        sources.read_facts({"source": "npz"})


def test_labels_may_be_as_collected(tmp_path):
    images = content()
    labels = (images["y_train"] + 1) % 4
    trusted = write(tmp_path / "trusted.npz", **images)
    assert sources.read(trusted).clean_known
    unsure = sources.read({**trusted, "clean_known": False})
    assert not unsure.clean_known
    np.testing.assert_array_equal(unsure.y_train, images["y_train"])
    without = {name: array for name, array in images.items() if name != "y_train"}
    spec = write(tmp_path / "given.npz", **without, given=labels)
    arrays = sources.read(spec)
    assert not arrays.clean_known
    assert arrays.given == {}
    np.testing.assert_array_equal(arrays.y_train, labels)
    with pytest.raises(ArtifactError, match=r"given\.npz: it needs y_train, or clean_known: false"):
        sources.read({**spec, "clean_known": True})
    ambiguous = write(tmp_path / "both.npz", **images, given=labels)
    with pytest.raises(SpecError, match=r"has y_train and given labels \(given\): keep one"):
        sources.read({**ambiguous, "clean_known": False})
    with pytest.raises(ArtifactError, match="exactly one set of given labels"):
        sources.read(write(tmp_path / "two.npz", **without, given_a=labels, given_b=labels))


def test_a_damaged_npz_is_named(tmp_path):
    path = tmp_path / "mine.npz"
    spec = write(path, **content())
    path.write_bytes(path.read_bytes()[:-50])
    for function in (sources.read, sources.read_facts):
        with pytest.raises(ArtifactError, match=r"mine\.npz: damaged"):
            function(spec)


def test_counting_reads_no_image(tmp_path):
    """With damaged image bytes behind an intact header, counting works and reading fails."""
    path = tmp_path / "mine.npz"
    spec = write(path, **content(n=2000))
    data = bytearray(path.read_bytes())
    data[50_000] ^= 1  # x_train is the first member
    path.write_bytes(data)
    assert sources.read_facts(spec)[:2] == (2000, 4)
    with pytest.raises(ArtifactError, match="CRC-32"):
        sources.read(spec)


# imagefolder


@pytest.fixture
def folder(tmp_path):
    root = photos(tmp_path / "photos")
    (root / "train" / "cat" / "notes.txt").write_text("no image")
    (root / "train" / "cat" / ".hidden.png").write_text("no image")
    return root


@pytest.fixture
def trained(folder):
    """The folder without the class that has no training image."""
    shutil.rmtree(folder / "test" / "emu")
    return folder


def numbers(x: np.ndarray) -> list[int]:
    return (x[:, 0, 0, 0] // 10).tolist()


def test_folders_are_classes(trained):
    spec = {"source": "imagefolder", "path": str(trained)}
    arrays = sources.read(spec)
    assert arrays.names == ("cat", "dog")
    assert arrays.x_train.shape == (8, 6, 8, 3)
    assert numbers(arrays.x_train[:]) == list(range(8))
    assert arrays.y_train.tolist() == [0] * 4 + [1] * 4
    assert (numbers(arrays.x_test[:]), arrays.y_test.tolist()) == ([8, 9], [0, 1])
    assert sources.read_facts(spec) == (8, 2, (6, 8))
    assert sources.read({**spec, "clean_known": False}).clean_known is False


def test_a_table_gives_labels_and_owners(folder):
    photo_table(folder)
    spec = {"source": "imagefolder", "path": str(folder), "given": "labels.csv"}
    arrays = sources.read(spec)
    assert arrays.given["given"].tolist() == [0, 1, 0, 0, 2, 2, 2, 2]
    assert arrays.client.tolist() == [0, 1] * 4
    assert arrays.clean_known
    assert sources.list_files(spec)[-1] == folder / "labels.csv"
    for wrong, message in (
        ("file,label\ncat/9.png,cat", r"labels\.csv, line 2: file: 'cat/9\.png' does not exist below .*photos/train"),
        ("file,label\ncat/1.png,cow", r"labels\.csv, line 2: 'cow' is no class folder"),
        ("file,label\ncat/1.png,cat\ncat/1.png,dog", "line 3: cat/1.png comes twice"),
        ("file,label\ncat/1.png,cat", "no label for .*photos/train/cat/0.png"),
        ("file;label\ncat/1.png;cat", r"the columns file and label \(or client, or both\) are needed"),
    ):
        (folder / "labels.csv").write_text(wrong)
        with pytest.raises(ArtifactError, match=message):
            sources.read(spec)


def test_images_are_scaled_and_cut_to_size(trained):
    for part in ("test", "train"):
        picture(trained / part / "dog" / "9.png", 90, size=(30, 20))
        with pytest.raises(ArtifactError, match=rf"{part}/dog/9\.png: 20x30, other images are 6x8; set size"):
            sources.read({"source": "imagefolder", "path": str(trained)})
        picture(trained / "test" / "dog" / "9.png", 90)
    arrays = sources.read({"source": "imagefolder", "path": str(trained), "size": 4})
    assert arrays.x_train.shape == (9, 4, 4, 3)
    assert numbers(arrays.x_train[:]) == [*range(8), 9]
    gray = sources.read({"source": "imagefolder", "path": str(trained), "size": [3, 5], "channels": 1})
    assert gray.x_train.shape == (9, 3, 5)


def test_the_middle_is_kept(tmp_path):
    image = np.zeros((10, 40, 3), np.uint8)
    image[:, 15:25] = 255
    Image.fromarray(image).save(tmp_path / "wide.png")
    x = ImageFiles(tmp_path, ["wide.png"], 3, (10, 10))
    assert (x[0] == 255).all()
    half = ImageFiles(tmp_path, ["wide.png"], 3, (10, 10), resize=20)[0]  # twice as large: 20 white columns
    assert half.shape == (10, 10, 3)
    assert (half == 255).all()


def test_missing_images_and_folders_are_named(trained):
    arrays = ImageFiles(trained / "train", ["cat/0.png", "cat/none.png"], 3)
    with pytest.raises(ArtifactError, match=r"cat/none\.png: no such file"):
        arrays[:]
    with pytest.raises(SpecError, match="has no folder train/"):
        sources.read_facts({"source": "imagefolder", "path": str(trained / "train" / "cat")})


# Clothing1M


@pytest.fixture
def clothes(tmp_path):
    return clothing(tmp_path / "clothing1m")


def test_clothing1m_is_decoded_block_by_block_into_a_mapped_file(clothes, tmp_path, monkeypatch):
    spec = {"source": "clothing1m", "size": 16}
    assert sources.read_facts(spec, [tmp_path])[:2] == (24, 14)
    monkeypatch.setattr("fednoise_core.data.arrays.BLOCK", 5)
    monkeypatch.setattr(sources, "SIDE_BYTES", 1000)
    asked = []
    decode = ImageFiles.__getitem__

    def watched(self, index):
        images = decode(self, index)
        asked.append(len(images))
        return images

    monkeypatch.setattr(ImageFiles, "__getitem__", watched)
    arrays = sources.read(spec, [tmp_path])
    assert asked == []  # reading the lists decodes nothing
    arrays.save(tmp_path / "out" / "clothing1m.npz", side_bytes=5000)
    assert max(asked) == 5
    back = Arrays.load(tmp_path / "out" / "clothing1m.npz")
    assert isinstance(back.x_train, np.memmap)
    assert back.x_train.shape == (24, 16, 16, 3)
    assert not back.clean_known
    assert back.y_train.tolist() == [i % 14 for i in range(24)]
    assert back.y_test.tolist() == [(i + 1) % 14 for i in range(24, 28)]
    assert back.names[13] == "Underwear"
    np.testing.assert_array_equal(back.x_train[np.array([7, 3])], arrays.x_train[np.array([7, 3])])
    with Image.open(clothes / "images/7/0/7,49.jpg") as image:  # by hand: shorter side to 18, middle 16 x 16
        scale = 18 / min(image.size)
        width, height = (max(16, round(side * scale)) for side in image.size)
        small = np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))
    top, left = (height - 16) // 2, (width - 16) // 2
    np.testing.assert_array_equal(back.x_train[7], small[top : top + 16, left : left + 16])


def test_clothing1m_options_and_the_command(clothes, tmp_path, capsys):
    spec = {"source": "clothing1m", "path": str(clothes), "size": 8, "eval": "val", "subset": {"train": 14}}
    out = tmp_path / "c.npz"
    assert download.main(["--spec", json.dumps(spec), "--out", str(out)]) == 0
    assert "14 train, 2 test, 0 public, 14 classes, clean labels unknown" in capsys.readouterr().out
    arrays = Arrays.load(out)
    assert arrays.x_train.shape == (14, 8, 8, 3)
    assert arrays.y_test.tolist() == [29 % 14, 30 % 14]
    folder = clothes / "annotations"
    folder.mkdir()
    for path in clothes.glob("*.txt"):
        path.rename(folder / path.name)
    assert sources.read_facts({"source": "clothing1m", "path": str(clothes)})[0] == 24


def test_clothing1m_paths_stay_in_the_folder(clothes):
    (clothes / "noisy_train_key_list.txt").write_text("../secret.jpg\n")
    (clothes / "noisy_label_kv.txt").write_text("../secret.jpg 1\n")
    with pytest.raises(ArtifactError, match=r"\.\./secret\.jpg leads out of the folder"):
        sources.read({"source": "clothing1m", "path": str(clothes)})
    (clothes / "clean_label_kv.txt").unlink()
    with pytest.raises(SpecError, match=r"has no clean_label_kv\.txt"):
        sources.read_facts({"source": "clothing1m", "path": str(clothes)})


def test_moments_of_constant_channels_and_of_many_files(tmp_path):
    assert mean_and_std(np.full((3, 4, 4), 51, np.uint8)) == ((0.2,), (1.0,))
    Image.new("L", (2, 2), 102).save(tmp_path / "a.png")
    assert mean_and_std(ImageFiles(tmp_path, ["a.png"] * 2500, 1))[0] == (0.4,)


def test_public_images_of_the_file_are_not_replaced(tmp_path):
    x, y = (np.arange(720) % 256).astype(np.uint8).reshape(20, 6, 6), np.arange(20) % 2
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y, x_public=x[:5])
    spec = {"source": "npz", "path": str(tmp_path / "mine.npz")}
    assert len(sources.read(spec).x_public) == 5
    with pytest.raises(SpecError, match="public: the data set has public images of its own, x_public"):
        sources.read({**spec, "public": 3})
