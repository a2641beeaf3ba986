"""Pools: images on the device as uint8, and their conversion to normalised batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from fednoise_core.data.augment import Augment


class Pool:
    """Images [n, H, W, C] uint8, as a tensor on the device or a memory-mapped array that is read piece by piece.

    Feature vectors are float32 [n, 1, 1, d].

    `take` returns float32 [m, H, W, C], normalised with the data set's mean and std. Channels are last in memory. So
    one gather makes a batch, and `permute(0, 3, 1, 2)` turns it into [m, C, H, W] in channels_last layout.
    """

    def __init__(
        self, images: np.ndarray, mean: Sequence[float], std: Sequence[float], device: torch.device | str = "cpu"
    ):
        self.shape = (images.shape[3] if images.ndim == 4 else 1, images.shape[1], images.shape[2])  # C, H, W
        self.n, self.device = len(images), torch.device(device)
        self.scale = 255.0 if images.dtype == np.uint8 else 1.0
        self._mapped = images if isinstance(images, np.memmap) else None
        if self._mapped is None:
            tensor = torch.from_numpy(np.ascontiguousarray(images))
            self._whole = (tensor if tensor.dim() == 4 else tensor[..., None]).to(self.device)
        self.mean = torch.tensor(mean, dtype=torch.float32, device=self.device)
        self.std = torch.tensor(std, dtype=torch.float32, device=self.device)

    def raw(self, index: Tensor) -> Tensor:
        """Look up images without normalisation.

        Args:
            index: Positions [m].

        Returns:
            uint8 [m, H, W, C].
        """
        if self._mapped is None:
            return self._whole.index_select(0, index)
        rows = torch.from_numpy(np.asarray(self._mapped[index.cpu().numpy()])).to(self.device)
        return rows if rows.dim() == 4 else rows[..., None]

    def normalise(self, x: Tensor) -> Tensor:
        """Normalise pixels to zero mean and unit variance by the data set's statistics.

        Args:
            x: […, C] in 0..255. The statistics are those of pixels in 0..1.

        Returns:
            float32 of the same shape.
        """
        return (x.to(torch.float32) / self.scale - self.mean) / self.std

    def take(self, index: Tensor) -> Tensor:
        """Look up normalised images.

        Args:
            index: Positions [m].

        Returns:
            float32 [m, H, W, C].
        """
        return self.normalise(self.raw(index))

    def chunks(self, index: Tensor, size: int) -> Iterator[Tensor]:
        """Go through normalised images in batches.

        Args:
            index: Positions.
            size: Images of a batch. The last one may be smaller.

        Yields:
            float32 [size, C, H, W], in the order of `index`.
        """
        for piece in index.split(size):
            yield self.take(piece).permute(0, 3, 1, 2)

    def augmented(self, x: Tensor, augmentation: Augment, u: Tensor) -> Tensor:
        """Augment and normalise a batch with given random numbers.

        Args:
            x: uint8 [B, H, W, C], or float32 feature vectors [B, 1, 1, d].
            augmentation: The augmentation.
            u: Uniform numbers [B, how.draws].

        Returns:
            float32 [B, C, H, W].
        """
        from fednoise_core.data.augment import prepare_images

        mean, std = self.mean.view(-1, 1, 1), self.std.view(-1, 1, 1)
        return prepare_images(x.permute(0, 3, 1, 2), u, augmentation, mean, std, self.scale)


def build_augmentation(spec: Any) -> Augment | None:
    """Build the augmentation of a name or of {"name": …, options…}.

    It is None for "none" and None. The module is imported on use, since most small runs have no augmentation.
    """
    if spec in ("none", None):
        return None
    from fednoise_core.data.augment import make_augmentation

    return make_augmentation(spec)
