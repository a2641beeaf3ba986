"""Image files as an array that is decoded on demand, so that a million images need not fit into memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.io import ArtifactError, raise_all

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "PPM", "TIFF")  # supported formats, with any file extension
BESIDE = frozenset({".txt", ".csv", ".tsv", ".json", ".yaml", ".yml", ".xml", ".md", ".html", ".ini", ".db", ".log"})
"""Endings of other files that may lie beside images."""


class DamagedImage(ArtifactError):
    """An image that Pillow cannot decode."""


class ImageFiles:
    """Image files as an array uint8 [n, H, W] (1 channel) or [n, H, W, 3]. `x[index]` decodes only these images.

    size: (H, W) of the result. None: the size of the first file, which all files must have. resize: length of the
    shorter side (bilinear) before the centre [H, W] is cropped. None: the smallest length that covers it.
    Images are rotated according to the orientation in their EXIF data.
    Raises ArtifactError with the names of all files that are missing, damaged or of another size, here and in `beside`.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        root: Path,
        paths: Sequence[str],
        channels: int = 3,
        size: tuple[int, int] | None = None,
        resize: int | None = None,
    ):
        self.root, self.paths, self.channels, self.resize = root, list(paths), channels, resize
        self.fixed = size is None  # no scaling: sizes must agree
        self.beside: tuple[ImageFiles, ...] = ()
        if size is None:
            width, height = self._open_image(self.paths[0]).size if self.paths else (1, 1)
            size = (height, width)
        self.size = size
        self.shape: tuple[int, ...] = (len(self.paths), *size, *((3,) if channels == 3 else ()))
        self.nbytes = int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.paths)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All of it, decoded."""
        return self[:] if dtype is None else self[:].astype(dtype)

    def take(self, index: np.ndarray) -> ImageFiles:
        """Select these images in this order, without decoding them."""
        size = None if self.fixed and len(index) == 0 else self.size
        part = ImageFiles(self.root, [self.paths[i] for i in index], self.channels, size, self.resize)
        part.fixed, part.beside = self.fixed, (self, *self.beside)
        return part

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, (int, np.integer)):
            return self._decode_image(self.paths[int(index)])
        chosen = self.paths[index] if isinstance(index, slice) else [self.paths[i] for i in np.asarray(index)]
        out = np.empty((len(chosen), *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # decoding leaves Python's lock
            try:
                for row, image in enumerate(pool.map(self._decode_image, chosen)):
                    out[row] = image
            except ArtifactError:
                raise_all(ArtifactError, dict.fromkeys(map(str, self._list_problems(pool))))
                raise
        return out

    def list_damaged(self) -> list[str]:
        """List the paths of the images that cannot be decoded."""
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            problems = list(pool.map(self._find_problem, self.paths))
        return [path for path, problem in zip(self.paths, problems, strict=True) if isinstance(problem, DamagedImage)]

    def _list_problems(self, pool: ThreadPoolExecutor) -> Iterator[ArtifactError]:
        for files in (self, *self.beside):
            yield from filter(None, pool.map(files._find_problem, files.paths))

    def _find_problem(self, name: str) -> ArtifactError | None:
        try:
            self._decode_image(name)
        except ArtifactError as error:
            return error
        return None

    def _open_image(self, name: str) -> Any:
        from PIL import Image, ImageOps

        path = self.root / name
        try:
            with Image.open(path, formats=FORMATS) as image:
                if image.mode[0] in "IF" or _has_wide_channels(image):  # Pillow would clip or cut them to 8 bits
                    raise ArtifactError(f"{path}: more than 8 bits a channel; save it with 8 bits a channel")
                count = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)  # an MPO: a photo, its preview
                if count > 1:
                    raise ArtifactError(f"{path}: it holds {count} images; save each as a file of its own")
                image.load()
                with contextlib.suppress(Exception):  # damaged EXIF has no orientation
                    ImageOps.exif_transpose(image, in_place=True)
                return image.convert("RGB" if self.channels == 3 else "L")
        except ArtifactError:
            raise
        except Exception as error:  # each of Pillow's readers raises its own kinds
            damaged = f"damaged image, or not {', '.join(FORMATS)} ({type(error).__name__}: {error})"
            problem = "no such file" if isinstance(error, FileNotFoundError) else damaged
            kind = ArtifactError if isinstance(error, FileNotFoundError) else DamagedImage
            raise kind(f"{path}: {problem}") from error

    def _decode_image(self, name: str) -> np.ndarray:
        from PIL import Image

        image = self._open_image(name)
        height, width = self.size
        if image.size != (width, height):
            if self.fixed:
                raise ArtifactError(
                    f"{self.root / name}: {image.size[1]}x{image.size[0]}, other images are {height}x{width}; set size"
                )
            shorter = self.resize or 0
            scale = max(height / image.size[1], width / image.size[0], shorter / min(image.size))
            across, down = max(width, round(image.size[0] * scale)), max(height, round(image.size[1] * scale))
            if (across, down) != image.size:
                image = image.resize((across, down), Image.Resampling.BILINEAR)
            left, top = (across - width) // 2, (down - height) // 2
            image = image.crop((left, top, left + width, top + height))
        return np.asarray(image)


def _has_wide_channels(image: Any) -> bool:
    """Return True if a colour image, opened but not decoded, has channels of more than 8 bits."""
    bits, args = getattr(image, "tag_v2", {}).get(258, (1,)), image.tile[0].args if image.tile else ""
    if image.format == "PPM":
        return isinstance(args, tuple) and args[1] > 255  # (mode, greatest value), unless that is 255
    return max(bits) > 8 or (image.format == "PNG" and ";16" in str(args))  # bits: a TIFF's BitsPerSample
