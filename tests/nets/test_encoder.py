"""Pretrained nets of torchvision as encoders. The weights here are random numbers in a file: tests have no network."""

import urllib.error
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file

import fednoise_core as fn
from fednoise_core.api.find_label_errors import warn_of_weak_models
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.label_errors.estimate import SiteLabels
from fednoise_core.nets.encoder import encode_images

NAME = "shufflenet_v2_x0_5"


@pytest.fixture(scope="module")
def net() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = torchvision.models.get_model(NAME)
    return module.eval()


@pytest.fixture
def weights(net: torch.nn.Module, tmp_path: Path) -> Path:
    """A folder with torchvision's file."""
    address = torchvision.models.get_model_weights(NAME).DEFAULT.url
    torch.save(net.state_dict(), tmp_path / address.rpartition("/")[2])
    return tmp_path


def drawn_images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_vectors_are_the_inputs_of_the_last_layer(
    net: torch.nn.Module, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = drawn_images(5, 12, 9, 3)
    images[4] = images[0]
    monkeypatch.setattr("fednoise_core.nets.encoder.BATCH", 3)
    before = torch.random.get_rng_state()
    vectors = encode_images(images, {"name": NAME, "weights": str(weights)})
    assert torch.equal(torch.random.get_rng_state(), before)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors[4], vectors[0])
    preset = torchvision.models.get_model_weights(NAME).DEFAULT.transforms(resize_size=224)
    logits = net(preset(torch.from_numpy(images).permute(0, 3, 1, 2))).detach().numpy()
    head = net.fc
    np.testing.assert_allclose(vectors @ head.weight.detach().numpy().T + head.bias.detach().numpy(), logits, atol=1e-5)
    named = {name: tensor for name, tensor in net.state_dict().items() if not name.startswith("fc.")}
    save_file(named, weights / "own.safetensors")  # the file needs no head
    again = encode_images(images, {"name": NAME, "weights": str(weights / "own.safetensors")})
    np.testing.assert_array_equal(again, vectors)
    grey = encode_images(images[..., 0], {"name": NAME, "weights": str(weights)})
    np.testing.assert_array_equal(grey, encode_images(images[..., [0, 0, 0]], {"name": NAME, "weights": str(weights)}))


def test_without_a_network_the_file_and_its_place_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("torch.hub.urlopen", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    place = tmp_path / "hub/checkpoints"
    with pytest.raises(ArtifactError, match=rf"{place}/resnet18-\w+\.pth: missing.* put this file into {place}"):
        encode_images(drawn_images(2, 8, 8), "resnet18")


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("resnet81", "encoder: unknown net 'resnet81'; did you mean 'resnet18'"),
        ("squeezenet1_1", "squeezenet1_1 has no linear last layer"),
        ({"name": NAME, "side": 3}, "expected a name, or name and weights, got side"),
        ({"name": NAME, "weights": "nowhere.pth"}, "nowhere.pth: no such weights file"),
        ({"name": NAME, "weights": "text.pth"}, "text.pth: not a file of plain tensors"),
        ({"name": "resnet18", "weights": "other.pth"}, "other.pth: weights of another net than resnet18"),
    ],
)
def test_impossible_encoders_are_named(
    net: torch.nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.pth").write_text("no tensors")
    torch.save(net.state_dict(), "other.pth")
    with pytest.raises((SpecError, ArtifactError), match=message):
        encode_images(drawn_images(2, 8, 8), encoder)


ADVICE, NO_NUMBER = "the models agree with 57 % of ", "there is no number of wrong la"


@pytest.mark.parametrize(
    ("agreement", "images", "estimated", "expected"),
    [
        ((0.8, 0.5), True, False, [ADVICE]),
        ((0.7, 0.9), True, True, []),
        ((0.7, 0.9), True, False, [NO_NUMBER]),
        ((0.5,), False, True, []),
        ((0.5,), False, False, [NO_NUMBER]),
    ],
)
def test_one_warning_if_nets_learn_little(
    agreement: tuple[float, ...], images: bool, estimated: bool, expected: list[str]
) -> None:
    """The mean is over samples: the first site has one, the other has three."""
    x = drawn_images(8, 8, 8) if images else np.arange(16, dtype=np.float32).reshape(8, 2)
    data = fn.arrays(x, [0, 1] * 4, test=(x[:1], [0]))
    sites = [
        SiteLabels(k, np.arange(1 + 2 * k), *np.zeros((3, 1)), 0, 0, 0, estimated, agreement=share)
        for k, share in enumerate(agreement)
    ]
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        warn_of_weak_models(data, sites)
    assert [str(record.message)[:30] for record in records] == expected


def test_images_are_judged_by_their_vectors(weights: Path, tmp_path: Path) -> None:
    """Checks of the images and the page still use the images."""
    images, y = drawn_images(60, 8, 8), np.arange(60) % 2
    images[:, :4] //= 4 - 3 * y[:, None, None].astype(np.uint8)
    images[7] = 90
    encoder = {"name": NAME, "weights": str(weights)}
    errors = fn.find_label_errors(images, y, encoder=encoder, progress=False)
    assert set(errors.loc[errors["blank"], "sample"]) == {7}
    vectors = fn.find_label_errors(encode_images(images, encoder), y, progress=False)
    np.testing.assert_array_equal(errors["p_wrong"], vectors["p_wrong"])
    errors.page(tmp_path / "labels.html")
    with pytest.raises(SpecError, match="encoder: x has feature vectors already"):
        fn.find_label_errors(np.eye(4), [0, 1] * 2, encoder=encoder)
    with pytest.raises(SpecError, match="encoder: nothing is trained with pred_probs"):
        fn.find_label_errors(None, [0, 1] * 2, pred_probs=np.full((4, 2), 0.5), encoder=encoder)
