import numpy as np
import pytest
import torch

from fednoise_core.data import augment as A
from fednoise_core.engine.pool import Pool
from fednoise_core.io import SpecError

ALMOST_ONE = 1 - 2**-24  # the greatest float32 below 1


def functional():
    return pytest.importorskip("torchvision.transforms.functional")


def channel_tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values).view(-1, 1, 1)


def images(n: int = 24, channels: int = 3, size: int = 32, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, channels, size, size), generator=draw, dtype=torch.uint8)


def numbers(n: int, draws: int, seed: int = 1) -> torch.Tensor:
    return torch.rand((n, draws), generator=torch.Generator().manual_seed(seed))


def test_normalise_is_torchvisions():
    x, mean, std = images(), (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
    expected = functional().normalize(x / 255, mean, std)
    for batch in (x, x.float()):
        out = A.normalise(batch, channel_tensor(mean), channel_tensor(std))
        assert out.dtype == torch.float32
        assert out.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(out, expected, rtol=0, atol=2e-6)


def test_crop_and_flip_are_torchvisions_exactly():
    tv, x = functional(), images()
    u = numbers(len(x), 3)
    out = A.CropFlip()(x, u)
    assert out.dtype == torch.uint8
    flips = 0
    for image, cropped, (top, left, mirror) in zip(x, out, u.tolist(), strict=True):
        expected = tv.crop(tv.pad(image, [4]), int(top * 9), int(left * 9), 32, 32)
        if mirror < 0.5:
            expected, flips = tv.hflip(expected), flips + 1
        assert torch.equal(cropped, expected)
    assert 0 < flips < len(x)
    assert torch.equal(A.CropFlip(flip=False)(x, u[:, :2])[0], out[0] if u[0, 2] >= 0.5 else tv.hflip(out[0]))
    assert torch.equal(A.Flip()(x, torch.tensor([[0.4]] * 12 + [[0.5]] * 12)), torch.cat([tv.hflip(x[:12]), x[12:]]))


def test_crops_reach_every_offset_and_none_beyond():
    x = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    x[0, 0, 4, 4] = 1  # its position in the output is the offset
    grid = torch.linspace(0, 1, 10)[:-1] + 1 / 18
    u = torch.cartesian_prod(grid, grid)
    seen = A.CropFlip(flip=False)(x.expand(81, -1, -1, -1), u).flatten(1).argmax(1)
    assert sorted(seen.tolist()) == list(range(81))
    edge = A.CropFlip(flip=False)(x, torch.full((1, 2), ALMOST_ONE))
    assert edge.flatten().argmax() == 0


def test_rotation_is_torchvisions():
    tv = functional()
    x = images(size=28, channels=1) / 255
    u = numbers(len(x), 1)
    expected = [tv.rotate(image, (2 * value - 1) * 30) for image, value in zip(x, u[:, 0].tolist(), strict=True)]
    off = (A.Rotate()(x, u) - torch.stack(expected)).abs() > 1e-4
    assert off.float().mean() < 1e-3  # a place half-way between two pixels may fall on either side
    assert torch.equal(A.Rotate()(x, torch.full((24, 1), 0.5)), x)


def test_rotation_keeps_bytes():
    x = images(size=28, channels=1)
    u = numbers(len(x), 1)
    assert A.Rotate()(x, u).dtype == torch.uint8
    torch.testing.assert_close(A.Rotate()(x, u) / 255, A.Rotate()(x / 255, u))


def by_torchvision(image: torch.Tensor, u: list[float]) -> torch.Tensor:
    """FedLSR's colour jitter with the given numbers, through torchvision's functions."""
    tv = functional()
    if u[8] >= 0.8:
        return image
    steps = [
        lambda x: tv.adjust_brightness(x, 0.2 + 1.6 * u[0]),
        lambda x: tv.adjust_contrast(x, 0.2 + 1.6 * u[1]),
        lambda x: tv.adjust_saturation(x, 0.2 + 1.6 * u[2]),
        lambda x: tv.adjust_hue(x, (2 * u[3] - 1) * 0.2),
    ]
    for which in sorted(range(4), key=lambda part: u[4 + part]):
        image = steps[which](image)
    return image


@pytest.mark.parametrize("space", ["image", "normalised"])
def test_colour_jitter_is_torchvisions(space):
    x = images(n=40) / 255
    if space == "normalised":
        x = (x - 0.5) / 0.25
    u = numbers(40, 9)
    scale = 255 if space == "image" else 1
    out = A.ColourJitter(on=space)(x * scale, u) / scale
    expected = torch.stack([by_torchvision(image, row) for image, row in zip(x, u.tolist(), strict=True)])
    off = (out - expected).abs()
    assert (off > 1e-4).float().mean() < 1e-4  # hue divides by the spread of the channels: nearly gray pixels round
    assert off.median() < 1e-6
    unchanged = u[:, 8] >= 0.8
    torch.testing.assert_close(out[unchanged], x[unchanged], rtol=1e-6, atol=0)
    assert 0 < unchanged.sum() < 40
    assert out[~unchanged].min() >= 0
    assert out[~unchanged].max() <= 1


def test_colour_jitter_of_gray_and_black_pixels_is_finite():
    x = torch.zeros(24, 3, 4, 4, dtype=torch.uint8)
    x[12:] = 100
    out = A.ColourJitter(p=1.0)(x, numbers(24, 9))
    assert torch.isfinite(out).all()
    assert (out[:12] == 0).all()
    assert (out.amax(1) - out.amin(1)).max() < 1e-4  # gray stays gray


def test_grayscale_is_torchvisions():
    x, u = images(), numbers(24, 1)
    out = A.Grayscale()(x, u)
    chosen = u[:, 0] < 0.2
    assert 0 < chosen.sum() < 24
    torch.testing.assert_close(out[chosen], functional().rgb_to_grayscale(x[chosen].float(), 3), rtol=0, atol=1e-4)
    assert torch.equal(out[~chosen], x[~chosen].float())


@pytest.mark.parametrize("name", [name for name in A.AUGMENTS if name != "none"])
def test_per_batch_uses_one_draw_for_all(name):
    augment = A.make_augmentation({"name": name, "per": "batch"})
    x = images(n=1).expand(6, -1, -1, -1)
    u = numbers(6, augment.draws)
    mean, std = channel_tensor([0.0] * 3), channel_tensor([1.0] * 3)
    out = A.prepare_images(x, u, augment, mean, std)
    assert torch.equal(out, out[:1].expand(6, -1, -1, -1))
    each = A.prepare_images(x, u, A.AUGMENTS[name], mean, std)
    assert not torch.equal(each, each[:1].expand(6, -1, -1, -1))


@pytest.mark.parametrize("name", list(A.AUGMENTS))
def test_nothing_depends_on_values_in_python(name):
    """On the meta device there are no values: `.item()`, `if` on a tensor or a boolean index would raise."""
    augment = A.AUGMENTS[name]
    x = torch.empty((5, 3, 32, 32), dtype=torch.uint8, device="meta")
    stats = torch.empty((3, 1, 1), device="meta")
    out = A.prepare_images(x, torch.empty((5, augment.draws), device="meta"), augment, stats, stats + 1)
    assert out.shape == (5, 3, 32, 32)
    assert out.dtype == torch.float32


def test_normalisation_comes_before_what_works_on_normalised_images():
    x, mean, std = images(), channel_tensor([0.5] * 3), channel_tensor([0.25] * 3)
    u = numbers(24, 4)
    late = A.Augment((A.CropFlip(), A.Grayscale(on="normalised")))
    expected = A.Grayscale()(A.normalise(A.CropFlip()(x, u[:, :3]), mean, std), u[:, 3:])
    assert torch.equal(A.prepare_images(x, u, late, mean, std), expected)
    parity = A.make_augmentation({"name": "colour", "on": "normalised", "per": "batch"})
    u = numbers(24, parity.draws)
    u[0, 9] = 0  # the first row decides: jitter
    assert A.prepare_images(x, u, parity, mean, std).min() >= 0  # the clamp of the jitter came last
    assert A.prepare_images(x, u, A.make_augmentation({"name": "colour", "per": "batch"}), mean, std).min() < 0
    with pytest.raises(ValueError, match="cannot come before"):
        A.Augment((A.Grayscale(on="normalised"), A.CropFlip()))


def test_settings_are_replaced_in_every_part_and_unknown_ones_refused():
    augment = A.make_augmentation({"name": "colour", "p": 1.0, "gray": 0.5, "per": "batch"})
    assert [part.per for part in augment.parts] == ["batch"] * 3
    assert (augment.parts[1].p, augment.parts[2].gray) == (1.0, 0.5)
    assert A.make_augmentation("none").draws == 0
    none = channel_tensor([0.0] * 3), channel_tensor([1.0] * 3)
    assert torch.equal(
        A.prepare_images(images(), torch.empty(24, 0), A.make_augmentation("none"), *none), images() / 255
    )
    with pytest.raises(SpecError, match="unknown augment 'rotate'; did you mean 'rotation'"):
        A.make_augmentation("rotate")
    with pytest.raises(SpecError, match="degrees: unknown key; known: flip, on, pad, per"):
        A.make_augmentation({"name": "crop_flip", "degrees": 3})
    with pytest.raises(SpecError, match=r"^train\.augment\.per: "):
        A.make_augmentation({"name": "crop_flip", "per": "epoch"})


def test_feature_vectors_are_normalised_alike_with_and_without_augmentation():
    features = np.random.default_rng(0).normal(3, 2, (6, 1, 1, 4)).astype(np.float32)
    pool = Pool(features, (3.0,) * 4, (2.0,) * 4)
    plain = pool.take(torch.arange(6)).permute(0, 3, 1, 2)
    for name in ("flip", "rotation"):  # of one pixel: nothing moves
        augmentation = A.make_augmentation(name)
        x = pool.augmented(pool.raw(torch.arange(6)), augmentation, torch.rand(6, augmentation.draws))
        torch.testing.assert_close(x, plain)
