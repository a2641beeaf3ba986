"""Pictures inside a page: small, with few colours, and none is embedded twice."""

import hashlib
import io
from dataclasses import dataclass, field

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image, UnidentifiedImageError

from fednoise_core.io import ArtifactError
from workflow_scripts.report.figures.style import FILL, WRONG
from workflow_scripts.report.runs.provenance import file_uri
from workflow_scripts.report.runs.settings import SettingArtifacts

COLOURS = 64
CLIENTS = 60  # largest number of clients in a thumbnail, which shows the first ones


@dataclass
class ImageCache:
    """The pictures in a page. If a picture comes again, the page refers to its first place instead."""

    places: dict[bytes, dict[str, str]] = field(default_factory=dict)

    def place(self, content: bytes, place: str, title: str) -> dict[str, str] | None:
        """Look up a picture, and register it if it is new.

        Args:
            content: The picture.
            place: The part of the page that shows it.
            title: The title of that part.

        Returns:
            None if the picture is new. It then belongs to the part `place`. Otherwise {id, title} of the part that
            already has it.
        """
        entry = self.places.setdefault(hashlib.sha256(content).digest(), {"id": place, "title": title})
        return None if entry["id"] == place else entry


def few_colours(content: bytes, colours: int = COLOURS) -> bytes:
    """Give a PNG a palette, which needs a third of the size and makes no visible difference for charts.

    Args:
        content: The PNG.
        colours: Number of colours in the palette.

    Returns:
        The smaller one of both files.
    """
    with Image.open(io.BytesIO(content)) as image:
        buffer = io.BytesIO()
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
        flat.quantize(colours, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return min(buffer.getvalue(), content, key=len)


def make_thumbnails(setting: SettingArtifacts) -> list[str]:
    """Make small pictures of a setting with one pixel per number, as data URIs.

    The first shows the classes (rows) of its clients (columns), with the clients' noise below. If labels are flipped, a
    second one shows the given labels (columns) of each clean label (rows).

    Args:
        setting: The setting.
    """
    counts = np.sqrt(setting.split.histogram(setting.labels.noisy, setting.classes).T[:, :CLIENTS])
    parts = [_shade_pixels(counts / max(counts.max(), 1), FILL)]
    if (rate := setting.client_rate) is not None:
        parts += [np.full((1, counts.shape[1], 3), 255.0), _shade_pixels(np.nan_to_num(rate[None, :CLIENTS]), WRONG)]
    pictures = [np.concatenate(parts)]
    realised = setting.labels.T_realised
    if realised is not None and setting.labels.rate > 0:
        share = np.sqrt(np.nan_to_num(realised))
        right = np.eye(len(share), dtype=bool)
        pictures.append(np.where(right[..., None], _shade_pixels(share, FILL), _shade_pixels(share, WRONG)))
    return [_png_uri(pixels) for pixels in pictures]


def _shade_pixels(share: np.ndarray, colour: str) -> np.ndarray:
    """Convert shares [h, w] to pixels [h, w, 3] in 0..255, from white to a colour."""
    return 255 * (1 - share[..., None] * (1 - np.array(to_rgb(colour))))


def _png_uri(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels.round().astype(np.uint8)).save(buffer, "PNG", optimize=True)
    return file_uri("png", buffer.getvalue())


def png_size(image: bytes) -> tuple[int, int]:
    """Width and height of a PNG, from its header.

    Args:
        image: The file.

    Raises:
        ArtifactError: The file is not a PNG.
    """
    try:
        return Image.open(io.BytesIO(image), formats=["PNG"]).size
    except UnidentifiedImageError as error:
        raise ArtifactError("not a PNG picture") from error
