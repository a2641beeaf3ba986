"""Augmentation of image batches from given random numbers, by pure functions.

x is [B, C, H, W]: values 0..255, uint8 or float32 (`on="image"`), or normalised float32 (`on="normalised"`). u is
float32 [B, draws] in [0, 1), drawn by the caller; the same numbers give the same images on every device up to rounding.
With `per="batch"` the first row of u counts for all samples.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import torch
import torch.nn.functional as F
from pydantic import Field, create_model
from torch import Tensor

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import Settings, Share, check_value, settings_of
from fednoise_core.settings.functions import check_int, resolve_kind, spec_of
from fednoise_core.settings.train import ValidatedSettings

RED, GREEN, BLUE = 0.2989, 0.587, 0.114  # ITU-R 601-2 luma, in the precision that torchvision uses


def normalise(x: Tensor, mean: Tensor, std: Tensor, scale: float = 255.0) -> Tensor:
    """Normalise images: (x / scale - mean) / std.

    Args:
        x: [B, C, H, W], uint8 or float.
        mean: float32 [C, 1, 1].
        std: float32 [C, 1, 1].
        scale: 255 for pixels 0..255, 1 for feature vectors.

    Returns:
        float32 [B, C, H, W], channels_last.
    """
    return ((x.to(torch.float32) / scale - mean) / std).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Part(ValidatedSettings):
    """One augmentation."""

    place = "train.augment"
    draws: ClassVar[int] = 0  # random numbers per sample: columns of u

    per: Annotated[
        Literal["sample", "batch"],
        Field(description="Random numbers for each sample, or the same numbers for a whole batch (FedLSR's code)."),
    ] = "sample"
    on: Annotated[Literal["image", "normalised"], Field(description="Apply it before or after normalisation.")] = (
        "image"
    )

    def check_shape(self, shape: tuple[int, int, int]) -> None:
        """Raise SpecError if images of this `shape` (C, H, W) cannot be augmented. It is called before training."""

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Augment x. The shape does not change. The docstring of the module describes x and u."""
        return self.apply(x, u[:1].expand(len(x), -1) if self.per == "batch" else u)

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        """Augment images by random numbers u with one row per sample."""
        raise NotImplementedError


def _gather_pixels(x: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """out[b, :, i, j] = x[b, :, rows[b, i], cols[b, j]], in channels_last memory."""
    sample = torch.arange(len(x), device=x.device)[:, None, None]
    return x.permute(0, 2, 3, 1)[sample, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


def _mirror_images(u: Tensor, width: int) -> Tensor:
    """Column numbers int64 [B, W], reversed where u < 1/2."""
    cols = torch.arange(width, device=u.device)[None]
    return torch.where(u[:, None] < 0.5, width - 1 - cols, cols)


@dataclass(frozen=True)
class Flip(Part):
    """Horizontal flip with probability 1/2."""

    draws = 1

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        rows = torch.arange(x.shape[2], device=x.device)[None].expand(len(x), -1)
        return _gather_pixels(x, rows, _mirror_images(u[:, 0], x.shape[3]))


@dataclass(frozen=True)
class CropFlip(Part):
    """Zero padding, random crop of the original size, then (if `flip`) a horizontal flip with probability 1/2."""

    pad: Annotated[int, Field(ge=0, description="Pixels added on every side.")] = 4
    flip: Annotated[bool, Field(description="Mirror, with probability 1/2.")] = True

    def check_shape(self, shape: tuple[int, int, int]) -> None:
        check_int(self.pad, f"train.augment.pad for images of {shape[1]}x{shape[2]}", 0, min(shape[1:]))

    @property
    def draws(self) -> int:  # type: ignore[override]
        return 3 if self.flip else 2

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        height, width = x.shape[2:]
        # u can be so near 1 that the product rounds up to 2 * pad + 1
        start = (u[:, :2] * (2 * self.pad + 1)).long().clamp(max=2 * self.pad)
        rows = start[:, :1] + torch.arange(height, device=x.device)
        cols = _mirror_images(u[:, 2], width) if self.flip else torch.arange(width, device=x.device)[None]
        return _gather_pixels(F.pad(x, [self.pad] * 4), rows, start[:, 1:] + cols)


@dataclass(frozen=True)
class Rotate(Part):
    """Rotation about the centre by U(-degrees, degrees), corners filled with 0; nearest pixel as in torchvision."""

    degrees: Annotated[float, Field(ge=0, le=180, description="Largest angle.")] = 30.0

    draws = 1

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        height, width = x.shape[2:]
        angle = (2 * u[:, 0] - 1) * math.radians(self.degrees)
        cos, sin = torch.cos(angle)[:, None, None], torch.sin(angle)[:, None, None]
        # pixel coordinates relative to the centre; positive angles turn counter-clockwise as seen (y points down)
        col = (torch.arange(width, device=x.device, dtype=torch.float32) - (width - 1) / 2)[None, None, :]
        row = (torch.arange(height, device=x.device, dtype=torch.float32) - (height - 1) / 2)[None, :, None]
        source_col, source_row = col * cos - row * sin, col * sin + row * cos
        grid = torch.stack([source_col * (2 / width), source_row * (2 / height)], dim=-1)
        out = F.grid_sample(x.to(torch.float32), grid, "nearest", "zeros", align_corners=False)
        return out.round().to(torch.uint8) if x.dtype == torch.uint8 else out


def _needs_colour(shape: tuple[int, int, int]) -> None:
    if shape[0] != 3:
        raise SpecError(f"changes of colour need images of 3 channels, these have {shape[0]}")


def _to_gray(x: Tensor) -> Tensor:
    """Luma [B, 1, H, W] of RGB."""
    return RED * x[:, :1] + GREEN * x[:, 1:2] + BLUE * x[:, 2:3]


def _blend_images(x: Tensor, base: Tensor | float, factor: Tensor) -> Tensor:
    return (factor * x + (1 - factor) * base).clamp(0, 1)


def _shift_hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue by `shift` [B, 1, 1] (1 is the full circle), through HSV."""
    red, green, blue = x.unbind(1)
    top, low = x.amax(1), x.amin(1)
    spread = top - low
    divisor = torch.where(spread == 0, 1.0, spread)
    saturation = spread / torch.where(top == 0, 1.0, top)
    sector = torch.where(
        top == red,
        (green - blue) / divisor,
        torch.where(top == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    turned = torch.remainder(sector / 6 + shift, 1.0) * 6
    full_sector = torch.floor(turned)
    part = turned - full_sector
    full_sector = torch.remainder(full_sector, 6)  # rounding can give exactly 6
    # clamped as torchvision does, which matters for values outside 0..1 (on="normalised")
    least = (top * (1 - saturation)).clamp(0, 1)
    falling = (top * (1 - saturation * part)).clamp(0, 1)
    rising = (top * (1 - saturation * (1 - part))).clamp(0, 1)

    def colour(first: int) -> Tensor:
        """The channel that is greatest in sectors first - 1 and first, falls in first + 1 and rises in first - 2."""
        place = torch.remainder(full_sector - first, 6)
        middle = torch.where(place == 1, falling, torch.where(place == 4, rising, least))
        return torch.where((place == 0) | (place == 5), top, middle)

    return torch.stack([colour(0), colour(2), colour(4)], dim=1)


Factor = Annotated[float, Field(ge=0, description="The factor is U(max(0, 1 - b), 1 + b).")]


@dataclass(frozen=True)
class ColourJitter(Part):
    """With probability p: brightness, contrast, saturation and hue by random factors, in random order.

    The values of FedLSR are the defaults. Every part clamps to 0..1, also on normalised images, where
    that discards about half of the signal: FedLSR's own code does so (`on="normalised"`).
    """

    brightness: Factor = 0.8
    contrast: Factor = 0.8
    saturation: Factor = 0.8
    hue: Annotated[float, Field(ge=0, le=0.5, description="Turned by U(-hue, hue) of the circle.")] = 0.2
    p: Annotated[Share, Field(description="Probability of the jitter.")] = 0.8

    def check_shape(self, shape: tuple[int, int, int]) -> None:
        _needs_colour(shape)

    draws = 9

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        white = 1.0 if self.on == "normalised" else 255.0
        u = u[:, :, None, None]
        bright, contrast, saturation = (
            max(0.0, 1 - width) + u[:, column : column + 1] * (1 + width - max(0.0, 1 - width))
            for column, width in enumerate((self.brightness, self.contrast, self.saturation))
        )
        shift = (2 * u[:, 3] - 1) * self.hue
        order = torch.argsort(u[:, 4:8], dim=1)  # a uniform permutation of the four parts
        out = x.to(torch.float32) / white
        for turn in range(4):
            which = order[:, turn : turn + 1]
            gray = _to_gray(out)
            # each sample has an order of its own: all four are computed and one is kept
            out = torch.where(
                which == 0,
                _blend_images(out, 0.0, bright),
                torch.where(
                    which == 1,
                    _blend_images(out, gray.mean((1, 2, 3), keepdim=True), contrast),
                    torch.where(which == 2, _blend_images(out, gray, saturation), _shift_hue(out, shift)),
                ),
            )
        return torch.where(u[:, 8:9] < self.p, out * white, x)


@dataclass(frozen=True)
class Grayscale(Part):
    """With probability `gray` all three channels become the luma."""

    gray: Annotated[Share, Field(description="Probability of grey.")] = 0.2

    def check_shape(self, shape: tuple[int, int, int]) -> None:
        _needs_colour(shape)

    draws = 1

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.where(u[:, :1, None, None] < self.gray, _to_gray(x), x)


@dataclass(frozen=True)
class Augment:
    """Parts one after the other, each with its own columns of u; those on normalised images come last.

    Attributes:
        parts: Augmentations, in the order in which they are applied.
        description: Description on the reference page.
        example: Settings of the example on the reference page.
    """

    parts: tuple[Part, ...]
    description: str = field(default="", compare=False)
    example: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        spaces = [part.on for part in self.parts]
        if spaces != sorted(spaces):  # "image" < "normalised"
            raise ValueError("a part on normalised images cannot come before one on images")

    @property
    def draws(self) -> int:
        """Random numbers per sample: columns of u."""
        return sum(part.draws for part in self.parts)

    def check_shape(self, shape: tuple[int, int, int]) -> None:
        """Raise SpecError if images (C, H, W) of this `shape` cannot be augmented so; asked before any training."""
        for part in self.parts:
            part.check_shape(shape)


def prepare_images(
    x: Tensor, u: Tensor, augmentation: Augment, mean: Tensor, std: Tensor, scale: float = 255.0
) -> Tensor:
    """Augment and normalise images, as a network sees them.

    Args:
        x: [B, C, H, W], 0..255 or feature vectors.
        u: random numbers in [0, 1), [B, how.draws].
        augmentation: the augmentation. Each part works before or after the normalisation, as its `on` says.
        mean: float32 [C, 1, 1].
        std: float32 [C, 1, 1].
        scale: 255 for pixels 0..255, 1 for feature vectors.

    Returns:
        float32 [B, C, H, W], channels_last.
    """
    columns = list(zip(augmentation.parts, u.split([part.draws for part in augmentation.parts], dim=1), strict=True))
    for part, numbers in columns:
        if part.on == "image":
            x = part(x, numbers)
    x = normalise(x, mean, std, scale)
    for part, numbers in columns:
        if part.on == "normalised":
            x = part(x, numbers)
    return x.contiguous(memory_format=torch.channels_last)


AUGMENTS: dict[str, Augment] = {
    "none": Augment((), description="Images as they are."),
    "flip": Augment((Flip(),), description="Mirrored left to right with probability 1/2."),
    "crop": Augment(
        (CropFlip(flip=False),),
        description="Zero padding, then a random cut of the original size (He et al., CVPR 2016).",
        example={"pad": 2},
    ),
    "crop_flip": Augment((CropFlip(),), description="Crop, then flip: the usual one for CIFAR (He et al., CVPR 2016)."),
    "rotation": Augment(
        (Rotate(),),
        description="Turned by U(-degrees, degrees) about the centre; nearest pixel, corners black (FedLSR).",
        example={"degrees": 15},
    ),
    "colour": Augment(
        (Flip(), ColourJitter(), Grayscale()),
        description="Flip, then brightness, contrast, saturation and hue by random factors, then sometimes grey "
        "(FedLSR); needs colour images.",
        example={"p": 0.5},
    ),
}


def settings_model(name: str) -> type[Settings]:
    """The settings of an augmentation, those of its parts, with its values as defaults."""
    declared: dict[str, Any] = {}
    for part in AUGMENTS[name].parts:
        hints = get_type_hints(type(part), include_extras=True)
        declared |= {key: (hints[key], getattr(part, key)) for key in settings_of(type(part))}
    return create_model(name, __base__=Settings, **declared)


def make_augmentation(spec: str | Mapping[str, Any]) -> Augment:
    """Make an augmentation from a name, or from {name, per, on, degrees, ...} with settings for all parts.

    Raises SpecError for an unknown name, for a setting that none of its parts has, or for a value out of range. Raises
    TypeError if `spec` is neither a name nor a mapping. `Augment.check_shape` checks that it fits the images.
    """
    options = spec_of(spec, "name", "train.augment")
    registered = resolve_kind(options, AUGMENTS, "train.augment", "name")
    values = check_value(settings_model(options.pop("name")), options, "train.augment").model_dump(exclude_unset=True)
    assigned = [(part, values.keys() & settings_of(type(part)).keys()) for part in registered.parts]
    return Augment(tuple(dataclasses.replace(part, **{key: values[key] for key in keys}) for part, keys in assigned))
