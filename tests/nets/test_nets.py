"""The nets: published sizes, outputs and gradients of ordinary modules, dropout from given numbers, init, memory."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from eager_nets import copy_into, eager
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fednoise_core.io import SpecError
from fednoise_core.nets import NETS, build_net
from fednoise_core.nets.net import Net
from fednoise_core.ops import optim
from fednoise_core.ops.optim import Trained
from fednoise_core.ops.weights import Weights

SIDE = {"linear": 28, "mlp": 28, "small_cnn": 28, "lenet": 28}  # sides of grey images; 3x32x32 for the others
SHIPPED = sorted(NETS.keys() - {"module"})  # modules of users: test_own_nets.py
COMPARED = sorted(NETS.keys() - {"resnet50", "module"})  # ResNet-50 is compared with torchvision's
NARROW: dict[str, dict[str, Any]] = {  # as scales cpu and cpunarrow have them
    "cnn9": {"width": 8},
    "mobilenet_v1": {"width": 8},
    "mobilenet_v2": {"width": 8},
    "resnet10": {"width": 8},
    "resnet12": {"width": 8},
    "resnet18": {"width": 8},
    "shufflenet": {"width": 56},
    "small_cnn": {"width": 16, "hidden": 128, "norm": True},
}
ROOT = Path(__file__).parents[2]
DESCRIBED = yaml.safe_load((ROOT / "config/schema/net.yaml").read_text(encoding="utf-8"))


def shape_of(name: str) -> tuple[int, int, int]:
    return (1, 28, 28) if name in SIDE else (3, 32, 32)


def images(shape: tuple[int, int, int], count: int, seed: int = 0) -> Tensor:
    """[count, C, H, W] in channels_last memory, as the engine hands them out."""
    c, h, w = shape
    return torch.randn(count, h, w, c, generator=torch.Generator().manual_seed(seed)).permute(0, 3, 1, 2)


def lively(net: Net, seed: int = 0) -> Weights:
    """Weights whose norm affines and statistics are not 1 and 0, so that a mix-up of them would show."""
    generator = torch.Generator().manual_seed(seed)
    w = net.fresh(generator)
    for entry in net.layout.entries:
        if entry.kind != "weight":
            w[entry.name].copy_(torch.rand(entry.shape, generator=generator) + 0.5)
    return w


def trained(net: Net, w: Weights) -> Trained:
    trainable = Trained(net.layout, optim.make_optimiser("sgd"))
    trainable.load(w)
    return trainable


def drops(net: Net, count: int, seed: int = 1) -> Tensor | None:
    return torch.rand(count, net.draws, generator=torch.Generator().manual_seed(seed)) if net.draws else None


def masks(u: Tensor, rate: float = 0.25) -> list[Tensor]:
    """The factors of the two dropouts of the 9-layer CNN: from the first third of u's columns, then from the others."""
    third = u.shape[1] // 3
    return [(part >= rate).to(u.dtype) / (1 - rate) for part in (u[:, :third], u[:, third:])]


@pytest.mark.parametrize(
    ("spec", "shape", "classes", "parameters"),
    [
        ("cnn9", (3, 32, 32), 10, 4_434_570),
        ("cnn9", (1, 28, 28), 10, 4_432_266),
        ("resnet10", (3, 32, 32), 10, 4_903_242),
        ("resnet12", (3, 32, 32), 10, 4_977_226),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("resnet18", (3, 32, 32), 100, 11_220_132),
        ("resnet34", (3, 32, 32), 10, 21_282_122),
        ("resnet34", (3, 32, 32), 100, 21_328_292),
        ("resnet50", (3, 224, 224), 14, 23_536_718),
        ("mobilenet_v1", (3, 32, 32), 10, 3_217_226),
        ("mobilenet_v2", (3, 32, 32), 10, 2_296_922),
        ("shufflenet", (3, 32, 32), 10, 887_582),
        ("lenet", (1, 28, 28), 10, 61_706),  # LeCun's layer list by hand: 156 + 2416 + 48120 + 10164 + 850
        ("lenet", (3, 32, 32), 10, 62_006),
        ("small_cnn", (1, 28, 28), 10, 52_138),  # 80 + 1168 + 784*64 + 64 + 650
        ("linear", (1, 28, 28), 10, 7_850),
        ("mlp", (1, 28, 28), 10, 50_890),
        # 9 * (8 + 2*64 + 128 + 2*256 + 512 + 512 + 128) + 3*128 + 90
        ({"name": "cnn9", "width": 8}, (1, 28, 28), 10, 17_826),
        # 160 + 32 + 4640 + 64 + 32*49*128 + 128 + 1290
        ({"name": "small_cnn", "width": 16, "hidden": 128, "norm": True}, (1, 28, 28), 10, 207_018),
    ],
)
def test_parameter_counts(
    spec: str | dict[str, Any], shape: tuple[int, int, int], classes: int, parameters: int
) -> None:
    net = build_net(spec, shape, classes)
    assert net.parameters == parameters
    assert net.parameters == sum(e.size for e in net.layout.entries if e.kind != "stat")
    assert net.layout.size - net.parameters == sum(e.size for e in net.layout.entries if e.kind == "norm")


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in COMPARED), *NARROW.items()])
def test_agrees_with_an_ordinary_module(name: str, options: dict[str, Any], double: None) -> None:
    shape = shape_of(name)
    net, module = build_net({"name": name, **options}, shape, 7), eager(name, shape[0], shape[1], 7, **options)
    assert net.parameters == sum(parameter.numel() for parameter in module.parameters())
    w = lively(net)
    copy_into(module, w)
    x, u = images(shape, 3), drops(net, 3)
    dropout = () if u is None else (masks(u),)
    torch.testing.assert_close(net.predict(w, x), module.eval()(x), rtol=1e-10, atol=1e-10)

    trainable = trained(net, w)
    logits, expected = net.train(trainable.w, x, u), module.train()(x, *dropout)
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    target = torch.tensor([0, 3, 6])
    grad = trainable.backward(nn.functional.cross_entropy(logits, target))
    nn.functional.cross_entropy(expected, target).backward()
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    for entry in net.layout.entries:
        if entry.kind == "stat":  # moved by the training pass
            torch.testing.assert_close(trainable.w[entry.name], tensors[entry.name], rtol=1e-10, atol=1e-10)
            assert not torch.equal(trainable.w[entry.name], w[entry.name])
        else:
            torch.testing.assert_close(net.layout.view(grad, entry), tensors[entry.name].grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", SHIPPED)
def test_features_are_what_the_head_sees(name: str) -> None:
    shape = shape_of(name)
    net = build_net({"name": name, "stem": "3x3"} if name == "resnet50" else name, shape, 5)
    w, x = lively(net), images(shape, 2)
    hidden = net.features(w, x)
    assert hidden.shape == (2, net.features_size)
    assert torch.equal(net.head(w, hidden), net.predict(w, x))
    assert torch.equal(w.flat, lively(net).flat)  # evaluation leaves the statistics alone
    assert torch.equal(net.predict(w, x, drops(net, 2)), net.predict(w, x))  # and drops nothing


def test_dropout_of_cnn9_takes_its_columns_in_order(double: None) -> None:
    net, none = build_net("cnn9", (1, 28, 28), 4), build_net({"name": "cnn9", "dropout": 0}, (1, 28, 28), 4)
    assert (net.draws, none.draws) == (128 + 256, 0)
    assert net.layout == none.layout
    x, w = images((1, 28, 28), 3), lively(net)
    logits = net.train(w.clone(), x, torch.ones(3, 384))
    assert torch.equal(net.train(w.clone(), x, torch.full((3, 384), 0.25)), logits)  # only numbers below the rate drop
    module = eager("cnn9", 1, 28, 4)
    copy_into(module, w)
    scaled = module.train()(x, [torch.full((3, 128), 4 / 3), torch.full((3, 256), 4 / 3)])  # all kept
    torch.testing.assert_close(logits, scaled, rtol=1e-10, atol=1e-10)
    last = torch.ones(3, 384)
    last[:, 128:] = 0  # the second dropout drops everything, so the images no longer matter
    blind = net.train(w.clone(), x, last)
    torch.testing.assert_close(blind, net.train(w.clone(), images((1, 28, 28), 3, seed=9), last))
    assert not torch.allclose(blind, logits)


def test_dropout_at_eval(double: None) -> None:
    shape = (1, 28, 28)
    net = build_net({"name": "cnn9", "dropout_at_eval": True}, shape, 4)
    w, x, u = lively(net), images(shape, 3), drops(net, 3)
    assert u is not None
    module = eager("cnn9", 1, 28, 4)
    copy_into(module, w)
    torch.testing.assert_close(net.predict(w, x, u), module.eval()(x, masks(u)), rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="random numbers"):
        net.predict(w, x)


def test_single_ok_says_whether_one_image_can_be_normalised() -> None:
    for name, shape, fine in (
        ("cnn9", (1, 28, 28), False), ("cnn9", (3, 32, 32), True), ("resnet18", (3, 32, 32), True),
        ("resnet18", (1, 8, 8), False), ("small_cnn", (1, 8, 8), True), ("mlp", (1, 8, 8), True),
    ):  # fmt: skip
        net = build_net(name, shape, 3)
        assert net.single_ok is fine
        w, u = net.fresh(torch.Generator().manual_seed(0)), drops(net, 1)
        assert net.predict(w, images(shape, 0)).shape == (0, 3)
        if fine:
            assert net.train(w, images(shape, 1), u).isfinite().all()
        else:
            with pytest.raises(ValueError, match="more than 1 value"):
                net.train(w, images(shape, 1), u)


@pytest.mark.parametrize("init", ["default", "xavier"])
@pytest.mark.parametrize("name", ["cnn9", "resnet10", "shufflenet", "lenet"])
def test_init_bounds(name: str, init: str) -> None:
    """Uniform with torch's own bounds: those of a fresh nn module, or of nn.init.xavier_uniform_ with zero biases."""
    shape = shape_of(name)
    net, module = build_net({"name": name, "init": init}, shape, 10), eager(name, shape[0], shape[1], 10)
    w, theirs = net.fresh(torch.Generator().manual_seed(0)), module.state_dict()
    for entry in net.layout.entries:
        tensor, reference = w[entry.name], theirs[entry.name]
        if entry.kind != "weight":
            assert torch.equal(tensor, reference)  # 1 and 0, running variance 1
            continue
        if init == "xavier":
            reference = nn.init.xavier_uniform_(reference.clone()) if reference.dim() > 1 else reference * 0
        weight = theirs[f"{entry.name.rpartition('.')[0]}.weight"]
        fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(weight)
        bound = 1 / math.sqrt(fan_in) if init == "default" else math.sqrt(6 / (fan_in + fan_out)) * (tensor.dim() > 1)
        for drawn in (tensor, reference):
            assert drawn.abs().max() <= bound * (1 + 1e-6)
            if drawn.numel() > 500 and bound:
                assert drawn.abs().max() > 0.98 * bound
                assert drawn.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    again, others = (net.fresh(torch.Generator().manual_seed(seed)).flat for seed in (0, 1))
    assert torch.equal(w.flat, again)
    assert not torch.equal(w.flat, others)


class Formats(TorchFunctionMode):
    """Names of functions that returned a map [B, C, H, W] out of channels_last memory."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.maps = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        if isinstance(out, Tensor) and out.dim() == 4 and name not in ("permute", "flatten", "__getitem__"):
            self.maps += 1
            if out.shape[2] * out.shape[3] > 1 and not out.is_contiguous(memory_format=torch.channels_last):
                self.wrong.append(name)
        return out


@pytest.mark.parametrize("name", sorted(NETS.keys() - {"linear", "mlp", "module"}))
@pytest.mark.parametrize("channels", [1, 3])
def test_maps_stay_channels_last(name: str, channels: int) -> None:
    shape = (channels, 32, 32)
    net = build_net({"name": name, "stem": "3x3"} if name == "resnet50" else name, shape, 5)
    trainable = trained(net, lively(net))
    x, u = images(shape, 2), drops(net, 2)
    with Formats() as formats:
        net.predict(trainable.w, x)
        trainable.backward(net.train(trainable.w, x, u).square().mean())
    assert formats.maps > 4
    assert not formats.wrong
    for entry in net.layout.entries:
        if len(entry.shape) == 4:
            assert trainable.w[entry.name].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 12, 16])
def test_the_gradient_of_a_narrow_resnet_is_that_of_channels_first(width: int) -> None:
    """oneDNN's issue 6035: channels last, 1x1, stride 2 and few channels crashed, or gave a wrong gradient."""
    net = build_net({"name": "resnet10", "width": width}, (3, 32, 32), 5)
    x = images((3, 32, 32), 32)
    grads = []
    for batch in (x, x.contiguous()):
        trainable = trained(net, net.fresh(torch.Generator().manual_seed(0)))
        if batch is not x:
            views = trainable.w.views
            views.update((key, view.contiguous()) for key, view in views.items() if view.dim() == 4)
        grads.append(trainable.backward(net.train(trainable.w, batch).square().mean()).clone())
    assert (grads[0] - grads[1]).norm() < 0.05 * grads[1].norm()


@pytest.mark.parametrize("name", ["cnn9", "resnet10", "mobilenet_v2", "shufflenet", "lenet"])
def test_steps_in_bfloat16(name: str) -> None:
    shape = shape_of(name)
    net = build_net(name, shape, 5)
    trainable = trained(net, net.fresh(torch.Generator().manual_seed(0)))
    x, u = images(shape, 4), drops(net, 4)
    exact = net.predict(trainable.w, x)
    with torch.autocast("cpu", torch.bfloat16):
        rough = net.predict(trainable.w, x)
        grad = trainable.backward(net.train(trainable.w, x, u).float().square().mean())
    assert rough.dtype == torch.bfloat16
    assert (rough.float() - exact).norm() < 0.05 * exact.norm()
    assert grad.dtype == torch.float32
    assert grad.isfinite().all()
    assert grad.norm() > 0


def test_wrong_settings_are_named() -> None:
    shape = (3, 32, 32)
    for spec, message in (
        ("resnet81", "unknown net 'resnet81'; did you mean 'resnet18'"),
        ({"stem": "3x3"}, "unknown net None; known: cnn9, lenet"),
        ({"name": "cnn9", "dropuot": 0.1}, "train.net.dropuot: unknown"),
        ({"name": "mobilenet_v2", "width": 6}, "^train.net.width: 6 is not a multiple of 4$"),
        ({"name": "shufflenet", "width": 60}, "^train.net.width: 60 is not a multiple of 8, as"),
        ({"name": "cnn9", "dropout": 1.0}, "^train.net.dropout: "),
        ({"name": "mlp", "init": "zeros"}, "^train.net.init: "),
    ):
        with pytest.raises(SpecError, match=message):
            build_net(spec, shape, 10)
    with pytest.raises(SpecError, match=r"cnn9: images of shape \(3, 24, 24\) do not fit .*too small: 'conv9' would"):
        build_net("cnn9", (3, 24, 24), 10)
    with pytest.raises(SpecError, match=r"small_cnn: images of shape \(1, 3, 3\)"):
        build_net("small_cnn", (1, 3, 3), 10)


def test_no_net_needs_torchvision() -> None:
    code = (
        "import sys, torch\n"
        "from fednoise_core.nets import NETS, build_net\n"
        "NETS.pop('module')\n"
        "for name in NETS:\n"
        "    net = build_net(name, (3, 32, 32), 3)\n"
        "    net.predict(net.fresh(torch.Generator()), torch.zeros(1, 3, 32, 32))\n"
        "print(len(NETS), 'torchvision' in sys.modules, 'torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(NETS) - 1), "False", "False"]


@pytest.mark.parametrize("name", SHIPPED)
def test_images_of_the_described_size_and_more_fit_and_smaller_ones_do_not(name: str) -> None:
    kind = DESCRIBED[name]
    stems = kind["properties"].get("stem", {}).get("enum", [])
    for spec in ({"name": name}, *({"name": name, "stem": stem} for stem in stems)):
        for side in range(1, 41):
            if side >= kind["smallest"]:
                build_net(spec, (3, side, side), 2)
            else:
                with pytest.raises(SpecError, match=rf"images of shape \(3, {side}, {side}\) do not fit"):
                    build_net(spec, (3, side, side), 2)


@pytest.mark.parametrize("name", list(DESCRIBED))
def test_described_examples_have_the_described_parameters(name: str) -> None:
    kind = DESCRIBED[name]
    assert build_net(kind["example"], tuple(kind["input"]), kind["classes"]).parameters == kind["parameters"]
