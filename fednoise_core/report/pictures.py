"""Pictures inside a page: few colours, small, and none twice."""

from __future__ import annotations

import hashlib
import io
import struct
from dataclasses import dataclass, field

from PIL import Image

from fednoise_core.io import ArtifactError
from fednoise_core.report.provenance import file_uri

__all__ = ["Shelf", "few_colours", "png_size", "thumbnail"]

COLOURS, THUMB_COLOURS = 64, 24
THUMB = 240  # pixels: a thumbnail's width, shown at half of it or more


@dataclass
class Shelf:
    """The pictures that a page holds: the second time the same one comes, its first place is named instead."""

    places: dict[bytes, dict[str, str]] = field(default_factory=dict)

    def place(self, content: bytes, here: str, title: str) -> dict[str, str] | None:
        """None if the picture is new, and is held by the part `here` of the page from now on; else {id, title} of the
        part that holds it.
        """
        known = self.places.setdefault(hashlib.sha256(content).digest(), {"id": here, "title": title})
        return None if known["id"] == here else known


def few_colours(content: bytes, colours: int = COLOURS) -> bytes:
    """A PNG with a palette: a third of the size, and for charts no difference to be seen. The smaller of both."""
    with Image.open(io.BytesIO(content)) as image:
        made = io.BytesIO()
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
        flat.quantize(colours, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
    return min(made.getvalue(), content, key=len)


def thumbnail(content: bytes) -> str:
    """A small version of a PNG, as a data address."""
    with Image.open(io.BytesIO(content)) as image:
        small = image.convert("RGB")
        small.thumbnail((THUMB, THUMB), Image.Resampling.LANCZOS)
        made = io.BytesIO()
        small.quantize(THUMB_COLOURS, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
    return file_uri("png", made.getvalue())


def png_size(image: bytes) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    if image[:8] != b"\x89PNG\r\n\x1a\n":
        raise ArtifactError("not a PNG picture")
    width, height = struct.unpack(">II", image[16:24])
    return width, height
