"""Thumbnails of many training images, packed into sprite sheets that a page contains as text."""

import base64
import dataclasses
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from fednoise_core.data.arrays import Arrays
from fednoise_core.noise.labels import Labels

COLUMNS, PER_SHEET = 10, 100  # a sheet is decoded when the first of its pictures is shown
SHARP = 32  # up to this side (pixels) pictures stay as they are, lossless
FEW, LARGE, SMALL = 2500, 96, 64  # longer sides are scaled down: to LARGE if there are no more than FEW pictures


@dataclass(frozen=True)
class Sheets:
    """Pictures i = 0, 1, … lie in sheet i // PER_SHEET, row by row.

    Attributes:
        side: The side of a picture in pixels.
        type: The media type of the files.
        texts: The files in base64.
    """

    side: int
    type: str
    texts: list[str]


def shown_images(arrays: Arrays, labels: Labels, donor: np.ndarray | None, rows: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield training samples as they were in training, one after another.

    Args:
        arrays: The arrays of the run.
        labels: Its labels, which list the images that open-set noise replaced.
        donor: The foreign images of open-set noise. Without them, replaced images are grey.
        rows: The training samples.

    Yields:
        Images, uint8 [H, W] or [H, W, C].
    """
    place: dict[int, int] = {}
    if labels.replaced is not None and labels.donor is not None:
        place = dict(zip(labels.replaced.tolist(), labels.donor.tolist(), strict=True))
    for row in rows:
        image = np.asarray(arrays.x_train[row : row + 1])
        if row not in place:
            yield image[0]
        elif donor is None:
            yield np.full_like(image[0], 128)
        else:
            alone = dataclasses.replace(labels, replaced=np.zeros(1, np.int64), donor=np.array([place[row]]))
            yield alone.replace_images(image, donor)[0]


def pack_sheets(images: Iterator[np.ndarray], count: int, longest: int) -> Sheets:
    """Pack images into sprite sheets.

    Args:
        images: The images. Those that are not square get grey edges.
        count: How many there are.
        longest: Pixels of their longer side. 1 for feature vectors, which are shown as squares of grey cells.
    """
    longest = SHARP if longest == 1 else longest
    sharp = longest <= SHARP
    side = longest if sharp else min(longest, LARGE if count <= FEW else SMALL)
    kind, options = ("PNG", {"optimize": True}) if sharp else ("JPEG", {"quality": 85})
    sheets = []
    for start in range(0, count, PER_SHEET):
        part = [_square_picture(image, side) for image in itertools.islice(images, min(PER_SHEET, count - start))]
        sheet = Image.new(part[0].mode, (COLUMNS * side, -(-len(part) // COLUMNS) * side))
        for place, picture in enumerate(part):
            sheet.paste(picture, (place % COLUMNS * side, place // COLUMNS * side))
        file = io.BytesIO()
        sheet.save(file, kind, **options)
        sheets.append(base64.b64encode(file.getvalue()).decode())
    return Sheets(side, f"image/{kind.lower()}", sheets)


def _square_picture(image: np.ndarray, side: int) -> Image.Image:
    if image.dtype.kind == "f":
        image = _draw_vector(image.ravel())
    if image.ndim == 3 and image.shape[2] != 3:  # neither grey nor colour: the mean of the channels
        image = image.mean(2).astype(np.uint8)
    return ImageOps.pad(Image.fromarray(image), (side, side), Image.Resampling.LANCZOS, "gray")


def _draw_vector(vector: np.ndarray) -> np.ndarray:
    """Draw features as grey cells, row by row. The smallest value is black, and the largest is white."""
    width = math.ceil(len(vector) ** 0.5)
    cells, low, high = np.zeros(width * width), vector.min(), vector.max()
    cells[: len(vector)] = 255 * (vector - low) / max(high - low, 1e-9)
    return cells.reshape(width, width).astype(np.uint8)
