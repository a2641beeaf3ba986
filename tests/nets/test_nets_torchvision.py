"""The ResNets against torchvision's, and weights that come from its files."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.nets import build_net, weights
from fednoise_core.nets.net import Net
from fednoise_core.ops import optim
from fednoise_core.ops.optim import Trained
from fednoise_core.ops.weights import Weights
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.provenance.step_code import ROOT
from workflow_scripts.steps import pretrained
from workflow_scripts.steps.training_run import RunFiles
from workflow_scripts.study.store import Store

SIZES = {"resnet18": 32, "resnet34": 32, "resnet50": 64}


def theirs(name: str, classes: int) -> nn.Module:
    """torchvision's net with random weights and lively statistics; for 32x32 with a 3x3 stem and no max-pool."""
    torch.manual_seed(0)
    module: nn.Module = getattr(torchvision.models, name)(num_classes=classes)
    if SIZES[name] == 32:
        module.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        module.maxpool = nn.Identity()
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            for tensor in (part.weight, part.bias, part.running_mean, part.running_var):
                tensor.data.uniform_(0.5, 1.5)
    return module


def images(name: str, count: int) -> Tensor:
    side = SIZES[name]
    drawn = torch.randn(count, side, side, 3, generator=torch.Generator().manual_seed(1))
    return drawn.permute(0, 3, 1, 2)


def copied(net: Net, module: nn.Module) -> Weights:
    """All of torchvision's parameters and statistics, by name."""
    w = net.layout.zeros()
    named = weights.rename_torchvision(module.state_dict())
    assert named.keys() == w.views.keys()
    weights.fill_weights(w, named, "torchvision")
    return w


@pytest.mark.parametrize("name", sorted(SIZES))
def test_logits_gradients_and_statistics_equal_torchvision(name: str, double: None) -> None:
    module = theirs(name, 14)
    net = build_net(name, (3, SIZES[name], SIZES[name]), 14)
    trainable = Trained(net.layout, optim.make_optimiser("sgd"))
    trainable.load(copied(net, module))
    x, y = images(name, 3), torch.tensor([0, 5, 13])
    torch.testing.assert_close(net.predict(trainable.w, x), module.eval()(x), rtol=1e-10, atol=1e-10)

    logits, expected = net.train(trainable.w, x), module.train()(x)
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    grad = trainable.backward(nn.functional.cross_entropy(logits, y))
    nn.functional.cross_entropy(expected, y).backward()
    grads = weights.rename_torchvision({n: p.grad for n, p in module.named_parameters() if p.grad is not None})
    moved = weights.rename_torchvision(module.state_dict())
    for entry in net.layout.entries:
        if entry.kind == "stat":
            torch.testing.assert_close(trainable.w[entry.name], moved[entry.name], rtol=1e-10, atol=1e-10)
        else:
            torch.testing.assert_close(net.layout.view(grad, entry), grads[entry.name], rtol=1e-8, atol=1e-10)


def test_norm_entries_are_batch_norms_by_type() -> None:
    """FedBN selects by kind, which must find what a search by module type finds, shortcuts included (5.5 g)."""
    module, net = theirs("resnet18", 10), build_net("resnet18", (3, 32, 32), 10)
    norms = [n for n, part in module.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    assert len(norms) == 20
    assert len([n for n in norms if "bn" not in n]) == 3  # the official filter by name misses these
    names = {kind: {e.name for e in net.layout.entries if e.kind == kind} for kind in ("weight", "norm", "stat")}
    assert names["norm"] == {f"{n}.{part}" for n in norms for part in ("weight", "bias")}
    assert names["stat"] == {f"{n}.running_{part}" for n in norms for part in ("mean", "var")}
    assert len(names["weight"]) == 20 + 2  # convolutions, and weight and bias of the head


def resnet18_file(folder: Path) -> Path:
    """A state dict as torchvision publishes them (7x7 stem, 1000 classes)."""
    torch.manual_seed(2)
    path = folder / "theirs.pth"
    torch.save(torchvision.models.resnet18(num_classes=1000).state_dict(), path)
    return path


def test_converted_weights_start_a_net(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = resnet18_file(tmp_path), tmp_path / "made" / "resnet18.safetensors"
    assert pretrained.main(["--net", "resnet18", "--file", str(source), "--out", str(out)]) == 0
    assert "100 tensors for resnet18, head left out" in capsys.readouterr().out  # 20 convolutions, 20 norms of 4
    spec: dict[str, Any] = {"name": "resnet18", "stem": "7x7", "weights": str(out)}
    net, plain = build_net(spec, (3, 64, 64), 14), build_net({"name": "resnet18", "stem": "7x7"}, (3, 64, 64), 14)
    w, drawn = (n.fresh(torch.Generator().manual_seed(4)) for n in (net, plain))
    module = torchvision.models.resnet18(num_classes=1000)
    module.load_state_dict(torch.load(source, weights_only=True))
    module.fc = nn.Identity()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(net.features(w, x), module.eval()(x), rtol=1e-4, atol=1e-5)
    for name in ("head.weight", "head.bias"):
        assert torch.equal(w[name], drawn[name])  # a new head, drawn as without the file
    assert not torch.equal(w["conv1.weight"], drawn["conv1.weight"])


def test_published_weights_have_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the workflow made comes first, then torch's folder of downloads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    net = build_net({"name": "resnet18", "stem": "7x7", "weights": "imagenet"}, (3, 64, 64), 1000)
    with pytest.raises(ArtifactError, match=r"resnet18-f37072fd\.pth: missing, and https://.*; put this file into"):
        net.fresh(torch.Generator().manual_seed(4))
    folder = tmp_path / "hub/checkpoints"
    source = resnet18_file(tmp_path).rename(folder / "resnet18-f37072fd.pth")
    w = net.fresh(torch.Generator().manual_seed(4))
    pretrained.convert_weights(source, "resnet18", Path("data/weights/resnet18.safetensors"))
    source.unlink()
    assert torch.equal(net.fresh(torch.Generator().manual_seed(4)).flat, w.flat)
    assert torch.equal(w["conv1.weight"], weights.read_tensors("data/weights/resnet18.safetensors")["conv1.weight"])
    assert weights.weight_files([net.describe_net(), "mlp"]) == ["data/weights/resnet18.safetensors"]
    with pytest.raises(SpecError, match=r"weights: no ImageNet weights are known for 'mlp' \(known: resnet18"):
        weights.weight_files({"name": "mlp", "weights": "imagenet"})
    with pytest.raises(SpecError, match="no ImageNet weights are known for 'mlp'"):
        build_net({"name": "mlp", "weights": "imagenet"}, (3, 64, 64), 14).fresh(torch.Generator().manual_seed(4))
    for stem, channels, width in (("3x3", 3, 64), ("7x7", 1, 64), ("7x7", 3, 32)):  # refused before a download
        spec = {"name": "resnet18", "stem": stem, "width": width, "weights": "imagenet"}
        net = build_net(spec, (channels, 64, 64), 14)
        with pytest.raises(SpecError, match=f"has {channels} channels, a stem of {stem} and width {width}"):
            net.fresh(torch.Generator().manual_seed(4))


def test_other_weights_make_another_run(tmp_path: Path) -> None:
    """A run does not reuse a checkpoint or result that started from other weights."""
    path = tmp_path / "start.safetensors"
    path.write_bytes(b"one")
    net = ["mlp", {"name": "small_cnn", "weights": str(path)}]
    files = RunFiles(path, path, path, tmp_path, tmp_path)
    before = files.hash_inputs(net)[f"weights {path}"]
    path.write_bytes(b"two")
    assert files.hash_inputs(net)[f"weights {path}"] != before


def test_weights_of_another_net_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    named = build_net("small_cnn", (1, 8, 8), 5).fresh(torch.Generator().manual_seed(0)).named()
    net = build_net({"name": "small_cnn", "weights": str(path)}, (1, 8, 8), 5)
    with pytest.raises(ArtifactError, match=r"w\.safetensors: no such weights file; .*imagenet"):
        net.fresh(torch.Generator())
    for tensors, message in (
        (named | {"conv1.weight": torch.zeros(4, 1, 3, 3)}, r"tensor 'conv1\.weight' has shape \(4, 1, 3, 3\)"),
        ({n: t for n, t in named.items() if n != "conv2.bias"}, r"tensor 'conv2\.bias' is missing"),
        (named | {"conv3.bias": torch.zeros(1)}, r"tensor 'conv3\.bias' is not in this net"),
    ):
        save_file(tensors, path)
        with pytest.raises(ArtifactError, match=message):
            net.fresh(torch.Generator())
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ArtifactError, match=r"w\.safetensors: damaged weights file"):
        net.fresh(torch.Generator())


def test_errors_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.safetensors"

    def error_of(*arguments: object) -> str:
        assert pretrained.main(["--out", str(out), *map(str, arguments)]) == 2
        assert not out.exists()
        return capsys.readouterr().err

    assert "no such weights file" in error_of("--net", "resnet18", "--file", tmp_path / "absent.pth")
    good = resnet18_file(tmp_path)
    assert "unknown net 'resnet19'; did you mean 'resnet1" in error_of("--net", "resnet19", "--file", good)
    assert "tensor 'layer1.2.conv1.weight' is missing" in error_of("--net", "resnet34", "--file", good)
    torch.save({"model": nn.Linear(2, 2)}, good)  # a pickled module would run code on loading
    assert "not a file of plain tensors" in error_of("--net", "resnet18", "--file", good)
    torch.save({"epoch": 3}, good)
    assert "not a state dict" in error_of("--net", "resnet18", "--file", good)
    assert "no published weights are known for net 'cnn9'" in error_of("--net", "cnn9")


def test_a_run_depends_on_published_weights_and_on_their_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # weights lie in the working folder
    project = Project({**read_yaml(ROOT / "config/config.yaml"), "device": "cpu"}, ROOT)
    path = Path("data/weights/resnet18.safetensors")
    spec = {
        "noise": {"kind": "none"},
        "partition": {"kind": "iid", "clients": 2},
        "method": {"name": "fedavg"},
        "train": {"net": {"name": "resnet18", "weights": "imagenet"}},
        "seed": 0,
    }

    def address() -> str:
        return Store(project).plan_run("digits", spec, 0).folder

    source = resnet18_file(tmp_path)
    monkeypatch.setitem(pretrained.PUBLISHED, "resnet18", ("", pretrained.sha256_file(source)))
    planned = address()
    pretrained.convert_weights(source, "resnet18", path)
    assert address() == planned
    monkeypatch.setitem(pretrained.PUBLISHED, "resnet18", ("", "0" * 64))
    with pytest.raises(SpecError, match=rf"^{path}: source_sha256: expected the published 0{{64}}, got .* file name"):
        address()
