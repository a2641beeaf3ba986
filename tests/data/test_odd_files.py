"""Odd images and odd CSVs of labels are read correctly, or refused in one line that names the file."""

import base64
import io
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_data import photo_table, photos

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.images import SUFFIXES, ImageFiles
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.label_errors.thumbnails import pack_sheets

PICTURE = Image.fromarray(np.random.default_rng(25).integers(0, 256, (6, 8, 3), dtype=np.uint8))
WIDE = (np.arange(48).reshape(6, 8) * 1365).astype(np.uint16)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def converted(kind: str, modes: str, **options: object) -> dict[str, tuple[bytes, np.ndarray]]:
    """The picture in modes of 8 bits and less: file name → (file, pixels)."""
    images = {mode: PICTURE.convert(mode) for mode in modes.split()}
    return {
        f"{mode}.{kind}": (encoded(image, kind, **options), np.asarray(image.convert("RGB")))
        for mode, image in images.items()
    }


READ = {
    **converted("png", "1 L LA P RGB RGBA"),
    **converted("tiff", "1 L LA P RGB RGBA CMYK"),
    **converted("bmp", "1 L P RGB"),
    **converted("ppm", "1 L RGB"),
    **converted("webp", "L RGB RGBA", lossless=True),
}
PAGES = {"save_all": True, "append_images": [PICTURE.rotate(180)]}
PLAIN = encoded(PICTURE, "png")


def png16(mode: str, colour: int) -> bytes:  # 8 pixels in a row as 4 of 16 bits a channel, which Pillow cannot write
    heads = [b"IHDR\0\0\0%c\0\0\0\6%c%c\0\0\0" % (width, bits, colour) for width, bits in ((8, 8), (4, 16))]
    return encoded(PICTURE.convert(mode), "png").replace(*(head + zlib.crc32(head).to_bytes(4) for head in heads))


REFUSED = {
    **{f"16-{mode}.png": png16(mode, colour) for mode, colour in (("RGB", 2), ("LA", 4), ("RGBA", 6))},
    "16-RGB.tiff": encoded(PICTURE, "tiff").replace(b"\x08\0" * 3, b"\x10\0" * 3) + bytes(300),
    "16-RGB.ppm": b"P6 8 6 65535\n" + bytes(288),
    "10-RGB.ppm": b"P3 8 6 1000\n" + b"999 " * 144,
    **{
        f"cut{n}-{name}": READ[name][0][: n * len(READ[name][0]) // 5]
        for name in READ
        if "RGB." in name
        for n in range(5)
    },
    **{f"16.{kind}": encoded(Image.fromarray(WIDE), kind) for kind in ("png", "tiff", "ppm")},
    **{f"32.{kind}": encoded(Image.fromarray(WIDE.astype(np.int32)), kind) for kind in ("tiff", "ppm")},
    **{f"float.{kind}": encoded(Image.fromarray(WIDE.astype("f4") / 65535), kind) for kind in ("tiff", "ppm")},
    "big-endian.tiff": encoded(Image.fromarray(WIDE.astype(">u2")), "tiff"),
    **{f"pages.{kind}": encoded(PICTURE, kind, **PAGES) for kind in ("png", "tiff", "webp")},
    **{f"{kind}.png": encoded(PICTURE, kind) for kind in ("gif", "eps", "ico", "tga", "pdf", "jpeg2000")},
    "empty.png": b"",
    "text.jpg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "zeros.bmp": bytes(500),
    "huge.ppm": b"P6 99999 99999 255\n",
    "head.png": PLAIN[:8],
    "checksum.png": PLAIN[:20] + b"\x01" + PLAIN[21:],
    **{
        f"old{suffix}": PLAIN
        for suffix in ("", ".gif", ".heic", ".avif", ".svg", ".eps", ".pdf", ".npy", ".jp2", ".dcm")
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = photos(tmp_path_factory.mktemp("odd"))
    photo_table(root)
    return root


def folder_spec(folder: Path) -> dict[str, str]:
    return {"source": "imagefolder", "path": str(folder), "given": "labels.csv"}


@pytest.mark.parametrize("name", READ)
def test_an_odd_image_is_read_right(name: str, tmp_path: Path) -> None:
    content, right = READ[name]
    (tmp_path / name).write_bytes(content)
    np.testing.assert_array_equal(ImageFiles(tmp_path, [name])[0], right)


UPRIGHT = {
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored.swapaxes(0, 1), 2),
    8: np.rot90,
}


@pytest.mark.parametrize("kind", ["png", "webp", "tiff", "jpeg"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_a_photo_is_turned_as_its_exif_says(orientation: int, kind: str, tmp_path: Path) -> None:
    stored = np.add.outer(np.arange(16) * 12, np.arange(24)).astype(np.uint8)  # brighter downwards
    exif, options = Image.Exif(), {"webp": {"lossless": True}, "jpeg": {"quality": 95}}.get(kind, {})
    exif[0x0112] = orientation
    Image.fromarray(stored).convert("RGB").save(tmp_path / f"photo.{kind}", exif=exif, **options)
    files, upright = ImageFiles(tmp_path, [f"photo.{kind}"]), np.stack([UPRIGHT[orientation](stored)] * 3, -1)
    assert files.shape == (1, *upright.shape)
    np.testing.assert_allclose(files[0].astype(int), upright, atol=3 if kind == "jpeg" else 0)


def test_damaged_exif_turns_nothing(tmp_path: Path) -> None:
    PICTURE.save(tmp_path / "photo.png", exif=b"Exif\0\0MM\0*" + b"\xff" * 40)
    np.testing.assert_array_equal(ImageFiles(tmp_path, ["photo.png"])[0], np.asarray(PICTURE))


def test_a_page_shows_a_turned_photo_upright(tmp_path: Path) -> None:
    exif, path = Image.Exif(), photos(tmp_path) / "train" / "cat" / "0.png"
    exif[0x0112] = 6
    stored = np.zeros((8, 6, 3), np.uint8)
    stored[:4] = 200  # the upper half, which is on the right once it is turned
    Image.fromarray(stored).save(path, exif=exif)
    photo_table(tmp_path)
    data = sources.read(folder_spec(tmp_path))
    assert data.source(0) == "cat/0.png"
    assert data.x_train[0, :, 4:].min() == 200 > data.x_train[0, :, :4].max() == 0
    sheet = pack_sheets(iter(data.x_train[:1]), 1, 8)
    (pixels,) = [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in sheet.texts]
    assert pixels[4, [0, 7], 0].tolist() == [0, 200]


@pytest.mark.parametrize("name", REFUSED)
def test_an_image_that_would_be_read_wrong_is_named(name: str, folder: Path) -> None:
    assert len(READ) + len(REFUSED) >= 60
    path = folder / "train" / "cat" / name
    path.write_bytes(REFUSED[name])
    read = sources.read if path.suffix not in SUFFIXES else lambda _: ImageFiles(folder / "train", [f"cat/{name}"])
    with pytest.raises(ArtifactError, match=rf"^{re.escape(str(path))}: .*\Z"):
        read(folder_spec(folder))
    path.unlink()


ROWS = [f"{'cat' if i < 4 else 'dog'}/{i}.png,cat,0" for i in range(8)]
TABLE = "\n".join(["file,label,client", *ROWS]).replace("dog/7.png,cat", "dog/7.png,emu")
TABLES: dict[str, str | bytes] = {
    "nothing": "",
    "a byte order mark alone": "\ufeff",
    "the head alone": "file,label,client",
    "no head": TABLE.partition("\n")[2],
    "an empty first line": f"\n{TABLE}",
    "semicolons": TABLE.replace(",", ";"),
    "tabs": TABLE.replace(",", "\t"),
    "blanks in the head": TABLE.replace("file,label", "file, label").replace("client", " client"),
    "capitals in the head": TABLE.replace("file,label", "File,Label"),
    "label twice": TABLE.replace("client", "label").replace(",0", ",cat").replace("emu,cat", "emu,emu"),
    "owner twice": TABLE.replace("client", "client,client").replace(",0", ",0,0"),
    "an unnamed column twice": TABLE.replace("client", "label,,"),
    "a quote that swallows the rest": TABLE.replace("cat/3.png", '"cat/3.png'),
    "a surplus cell": TABLE.replace("3.png,cat,0", "3.png,cat,0,1"),
    "a surplus empty cell": TABLE.replace("3.png,cat,0", "3.png,cat,0,"),
    "a row too short": TABLE.replace("3.png,cat,0", "3.png,cat"),
    "a row of one cell": TABLE.replace("3.png,cat,0", "3.png"),
    "a line missing": TABLE.replace(ROWS[3], ""),
    "a line twice": f"{TABLE}\n{ROWS[3]}",
    "a line twice, with a mark": f"{TABLE}\n'{ROWS[3]}",
    "no file": TABLE.replace("cat/3.png", ""),
    "another file": TABLE.replace("cat/3.png", "cat/33.png"),
    "a file above": TABLE.replace("cat/3.png", "../train/cat/3.png"),
    "an absolute file": TABLE.replace("cat/3.png", "/etc/passwd"),
    "a backslash": TABLE.replace("cat/3.png", "cat\\3.png"),
    "the folder again": TABLE.replace("cat/3.png", "train/cat/3.png"),
    "blanks around a file": TABLE.replace("cat/3.png", " cat/3.png "),
    "no label": TABLE.replace("3.png,cat", "3.png,"),
    "a blank label": TABLE.replace("3.png,cat", "3.png, "),
    "an unknown label": TABLE.replace("3.png,cat", "3.png,cta"),
    "a number as label": TABLE.replace("3.png,cat", "3.png,0"),
    "a long label": TABLE.replace("3.png,cat", "3.png," + "c" * 201),
    "a label of two lines": TABLE.replace("3.png,cat", '3.png,"c\nat"'),
    "a label with a bell": TABLE.replace("3.png,cat", "3.png,cat\a"),
    "no owner": TABLE.replace("3.png,cat,0", "3.png,cat,"),
    "an owner of two lines": TABLE.replace("3.png,cat,0", '3.png,cat,"0\n1"'),
    "a wrong drop": TABLE.replace("client", "drop").replace(",0", ",maybe"),
    "everything dropped": TABLE.replace("client", "drop").replace(",0", ",yes"),
    "a quote that is not closed": TABLE.replace("cat/3.png", '"cat/3.png') + "x" * 140_000,
    "UTF-16": TABLE.encode("utf-16"),
    "Latin-1": TABLE.replace("3.png,cat", "3.png,chät").encode("latin-1"),
    "a zero byte": TABLE.replace("3.png,cat", "3.png,\0"),
    "a byte that is not UTF-8": b"file,label\ncat/0.png,\xff\n",
    "a long cell": TABLE.replace("3.png,cat", "3.png," + "x" * 200_000),
    "a long quoted cell": TABLE.replace("3.png,cat", '3.png,"' + "x\n" * 100_000),
    "an owner of 5,000 digits": TABLE.replace("3.png,cat,0", "3.png,cat," + "9" * 5000),
    "a blank owner": TABLE.replace("3.png,cat,0", "3.png,cat, "),
    "JSON": '[{"file": "cat/0.png", "label": "cat"}]',
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_an_odd_table_is_named(text: str | bytes, folder: Path) -> None:
    table = folder / "labels.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((ArtifactError, SpecError), match=rf"^({re.escape(str(table))}.*(\n|\Z))+\Z"):
        sources.read(folder_spec(folder))


def test_a_side_that_no_memory_holds_is_refused(folder: Path) -> None:
    photo_table(folder)
    with pytest.raises(SpecError, match=r"dataset\.size: expected .*4096.*, got 1000000"):
        sources.read({**folder_spec(folder), "size": 1_000_000})


def test_all_damaged_images_are_named_at_once_or_left_out(tmp_path: Path) -> None:
    photo_table(photos(tmp_path))
    for number in range(30):
        (tmp_path / "train" / "cat" / f"bad{number:02}.png").write_bytes(PLAIN[:40])
    (tmp_path / "test" / "emu" / "bad.png").write_bytes(b"")
    labels = (tmp_path / "labels.csv").read_text()
    rows = "".join(f"\ncat/bad{number:02}.png,cat,0" for number in range(30))
    (tmp_path / "labels.csv").write_text(labels + rows)
    with pytest.raises(ArtifactError) as caught:
        sources.read(folder_spec(tmp_path) | {"size": 6})
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert all("damaged image" in line for line in lines[:20])
    assert len(set(lines)) == 21
    assert lines[20] == "and 11 more"
    data = sources.read(folder_spec(tmp_path) | {"damaged": "skip"})
    clean = sources.read(folder_spec(photos_alone(tmp_path / "whole")))
    np.testing.assert_array_equal(data.x_train, clean.x_train)
    np.testing.assert_array_equal(data.given["given"], clean.given["given"])
    np.testing.assert_array_equal(data.client, clean.client)
    assert len(data.left_out) == 31
    data.save(tmp_path / "arrays.npz")
    assert Arrays.load(tmp_path / "arrays.npz").left_out == data.left_out
    assert sources.read(folder_spec(tmp_path / "whole")).left_out == ()


def photos_alone(root: Path) -> Path:
    photo_table(photos(root))
    return root


def test_all_bad_rows_of_a_table_are_named_at_once(tmp_path: Path) -> None:
    photo_table(photos(tmp_path))
    text = (tmp_path / "labels.csv").read_text().replace("0.png,cat", "0.png,cta").replace("3.png,cat,1", "3.png,cat,")
    (tmp_path / "labels.csv").write_text(text.replace("dog/5.png", "dog/55.png"))
    with pytest.raises(ArtifactError) as caught:
        sources.read(folder_spec(tmp_path))
    problems = "\n".join(sorted(str(caught.value).splitlines()))
    assert re.fullmatch(
        r".*line 4: file: 'dog/55.png' does.*\n.*line 6: client: expected.*\n.*line 9: 'cta' is no class.*\n"
        r".*no label for .*/train/dog/5.png",
        problems,
    )
