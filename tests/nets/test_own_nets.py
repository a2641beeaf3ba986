"""Nets from ordinary torch modules: same engine, executors and resume. Modules that cannot run are refused."""

import re
import shutil
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import mynets
import numpy as np
import pytest
import torch
import toy
from torch import nn

import fednoise_core as fn
from fednoise_core.api.run import Run
from fednoise_core.engine.world import torch_switches
from fednoise_core.io import SpecError
from fednoise_core.nets import build_net
from fednoise_core.nets.module import with_named_nets
from fednoise_core.ops.optim import SGD, Trained
from workflow_scripts.config.nets import net_code
from workflow_scripts.provenance.code_hash import read_modules
from workflow_scripts.provenance.step_code import StepCode

NORMED = {"name": "module", "factory": "mynets:Normed"}
MAKE = {"name": "module", "factory": "mynets:make"}
ROOT = Path(__file__).parents[2]


def with_weights_of(net: Any, source: Any, seed: int = 0) -> Any:
    """Weights of `net` with the numbers of another net's entries, in order."""
    drawn, w = source.fresh(torch.Generator().manual_seed(seed)), net.layout.zeros()
    for target, theirs in zip(net.layout.entries, source.layout.entries, strict=True):
        w[target.name].copy_(drawn[theirs.name])
    return w


def test_a_module_is_the_same_net_as_the_librarys():
    ours = build_net({"name": "mlp", "hidden": 6}, (1, 8, 8), 5)
    theirs = build_net({**MAKE, "options": {"hidden": 6}}, (1, 8, 8), 5)
    w, copied = ours.fresh(torch.Generator().manual_seed(0)), with_weights_of(theirs, ours)
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(theirs.train(copied, x), ours.train(w, x))
    torch.testing.assert_close(theirs.features(copied, x), ours.features(w, x))
    assert (theirs.parameters, theirs.features_size, theirs.draws) == (ours.parameters, 6, 0)
    assert list(theirs.named_tensors(copied)) == ["1.weight", "1.bias", "3.weight", "3.bias"]


def test_modes_statistics_dropout_and_fresh_weights():
    net, module = build_net(NORMED, (1, 8, 8), 5), mynets.Normed((1, 8, 8), 5)
    w, again, different = (net.fresh(torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(w.flat, again.flat)
    assert not torch.equal(w.flat, different.flat)
    kinds = {entry.name: entry.kind for entry in net.layout.entries}
    assert {kinds[f"stem.1.{name}"] for name in ("weight", "bias")} == {"norm"}
    assert {kinds[f"stem.1.running_{name}"] for name in ("mean", "var")} == {"stat"}
    assert net.draws == 6 + 6  # channels of the one dropout, features of the other
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    module.load_state_dict(net.named_tensors(w), strict=False)  # the module also has a constant
    torch.testing.assert_close(net.predict(w, x), module.eval()(x))
    before = w.clone()
    u = torch.ones(4, 12)
    u[0, :6] = 0.1  # the first image loses every channel, then every feature that is left
    logits = net.train(w, x, u)
    torch.testing.assert_close(logits[0], w["head.bias"])
    module.train()
    module.drop.p = module.drop2.p = 0.0
    plain = module(x)
    torch.testing.assert_close(w["stem.1.running_mean"], module.stem[1].running_mean)
    assert not torch.equal(w["stem.1.running_mean"], before["stem.1.running_mean"])
    scaled = (plain - module.classifier.bias) / (0.75 * 0.5) + module.classifier.bias
    torch.testing.assert_close(logits[1:], scaled[1:])


def test_copies_for_batch_normalisation_on_a_gpu_change_no_bit(monkeypatch: pytest.MonkeyPatch):
    plain = toy.play("feddpcont", net=NORMED)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    copied = toy.play("feddpcont", net=NORMED)
    assert toy.same_state(copied.outcome.state, plain.outcome.state)


def test_a_layer_whose_name_begins_like_the_heads_is_trained():
    net = build_net({"name": "module", "factory": "mynets:make_normed_head"}, (1, 8, 8), 5)
    trained = Trained(net.layout, SGD())
    trained.load(net.fresh(torch.Generator().manual_seed(0)))
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    trained.backward(net.train(trained.w, x).square().sum())
    assert trained.w["head.0.weight"].grad.any()
    assert trained.w["head.0.running_mean"].all()


def test_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    build_net(NORMED, (1, 8, 8), 5).fresh(torch.Generator())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_global_settings_do_not_change_a_run():
    def is_flushed() -> bool:
        return (torch.tensor(1e-310, dtype=torch.float64) * 1.0).item() == 0

    alone = toy.play("fedavg").outcome.state.server["model"].flat
    assert not is_flushed()
    torch.set_flush_denormal(True)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(), np.errstate(all="raise"):
            surrounded = toy.play("fedavg").outcome.state.server["model"].flat
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
        flushed = is_flushed()
        torch.set_flush_denormal(False)
    assert flushed
    assert torch.equal(surrounded, alone)


def test_nothing_intercepts_the_calls_of_torch_in_a_run():
    """A device context would intercept them and make small runs 50 % slower."""
    with torch_switches(1):
        assert torch._C._len_torch_function_stack() == 0


def test_a_trained_module_takes_pixels_of_any_integer_type():
    method, train = toy.settings("fedavg")
    model = fn.run(toy.arrays(), toy.toy_labels(), toy.toy_partition(), method, train).module().eval()
    images = torch.from_numpy(toy.arrays().x_test)[:5, None]
    expected = model(images)
    for kind in (torch.int64, torch.int32):
        assert torch.equal(model(images.to(kind)), expected)
    torch.testing.assert_close(model(images.to(torch.float64) / 255), expected)


def test_executors_agree_and_a_function_stands_for_its_name():
    sequential = toy.play("fedavg", net=NORMED)
    workers = toy.play("fedavg", net=NORMED, executor="workers:2")
    flats = [run.outcome.state.server["model"].flat for run in (sequential, workers)]
    assert torch.equal(*flats)
    assert with_named_nets({"net": [mynets.Normed, "mlp"]}) == {"net": [NORMED, "mlp"]}
    method, train = toy.settings("fedavg")
    world = toy.arrays(), toy.toy_labels(), toy.toy_partition()
    run = fn.run(*world, method, {**train, "net": mynets.Normed})
    assert torch.equal(run.outcome.state.server["model"].flat, flats[0])
    assert run.spec["spec"]["train"]["net"] == NORMED
    assert fn.run(*world, method, fn.Train(**{**train, "net": mynets.Normed})).curve == run.curve


@pytest.mark.parametrize("name", ["feddpcont", "coteaching", "scaffold", "ditto"])
def test_methods_that_look_at_features_and_heads_run(name: str):
    run = toy.play(name, net=NORMED)
    assert np.isfinite(run.summary["accuracy"]["last"])


def softmaxed(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes), nn.Softmax(1))


class OwnNoise(nn.Module):
    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(nn.functional.dropout(x.flatten(1), 0.5, self.training))


def numpy_drawn(shape: Any, classes: int) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    with torch.no_grad():
        module[1].bias.copy_(torch.from_numpy(np.random.default_rng().random(classes)))
    return module


def wrong_size(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 1))


def frozen(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, classes))


def averaging(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, classes))


def masked(shape: Any, classes: int) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    module.register_buffer("mask", torch.full((3,), float("-inf")))
    return module


def lazy(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


class Attending(nn.Module):
    """A transformer on the rows of an image."""

    def __init__(self, shape: Any, classes: int, attention: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True)
        self.layer.self_attn.dropout = attention
        self.head = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x[:, 0]).mean(1))


def attending(shape: Any, classes: int) -> nn.Module:
    return Attending(shape, classes, attention=0.25)


class DroppingInTraining(nn.Module):
    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        return self.head(self.drop(x) if self.training else x)


@pytest.mark.parametrize(("factory", "draws"), [(Attending, 8 * 8 + 8 * 16 + 8 * 8), (DroppingInTraining, 64)])
def test_dropout_that_is_skipped_in_evaluation_draws_in_training(factory: Any, draws: int):
    named = {"name": "module", "factory": f"{__name__}:{factory.__name__}"}
    net = build_net(named, (1, 8, 8), 5)
    assert net.draws == draws
    w, x = net.fresh(torch.Generator().manual_seed(0)), torch.rand(4, 1, 8, 8)
    u = torch.ones(4, draws)
    assert not torch.allclose(net.train(w, x, torch.zeros(4, draws)), net.train(w, x, u))
    assert np.isfinite(toy.play("fedavg", net=named).summary["accuracy"]["last"])


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lazy, "1.weight has no shape yet"),
        (attending, "use torch.nn.Dropout layers, in attention dropout=0"),
        (frozen, "1.weight has requires_grad=False, but all is trained"),
        (averaging, "2 has momentum=None"),
        (masked, "mask: a buffer of floats is averaged, and must be finite"),
        (softmaxed, "it gives probabilities; leave out its softmax"),
        (OwnNoise, r"it draws random numbers of its own in training; use torch\.nn\.Dropout"),
        (numpy_drawn, "its factory gives other weights at every call"),
        (wrong_size, r"it gives \(3, 6\) for 3 images; logits \(3, 5\) are needed"),
        (mynets, "expected module:name"),
    ],
)
def test_a_module_that_cannot_be_run_is_refused(factory: Any, message: str):
    named = f"{__name__}:{factory.__name__}" if callable(factory) else "mynets"
    with pytest.raises(SpecError, match=f"train.net.*{message}"):
        build_net({"name": "module", "factory": named}, (1, 8, 8), 5)


class Answer:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


class Scaled(nn.Module):
    """Returns an object, as Hugging Face's models do; its logits are not those of its last linear layer, `head`."""

    def __init__(self, shape: Any, classes: int) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> Answer:
        return Answer(3 * self.head(self.body(x.flatten(1)).relu()))


def without_bias(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes, bias=False))


def normed_weight(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(64, classes)))


def convolved(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, classes, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize("factory", [Scaled, without_bias, normed_weight, convolved])
@pytest.mark.parametrize("method", ["fedavg", "fedrn", "ditto"])
def test_a_module_whose_last_layer_is_no_head_runs(factory: Any, method: str, tmp_path: Path):
    named = {"name": "module", "factory": f"{__name__}:{factory.__name__}"}
    net, module = build_net(named, (1, 8, 8), 5), factory((1, 8, 8), 5)
    w = net.fresh(torch.Generator().manual_seed(0))
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    module.load_state_dict(net.named_tensors(w), strict=False)  # the net also has an identity layer
    logits = module(x).logits if factory is Scaled else module(x)
    torch.testing.assert_close(net.predict(w, x), logits)
    torch.testing.assert_close(net.features(w, x), logits)
    assert net.parameters == sum(p.numel() for p in module.parameters())
    original = Run(**vars(toy.play(method, net=named)))
    original.save(tmp_path)
    loaded, client = fn.load(tmp_path, factory=factory), 0 if method == "ditto" else None
    images = original.arrays.x_test[:3]
    shares = [run.predict(images, client).probabilities for run in (loaded, original)]
    np.testing.assert_allclose(*shares, atol=1e-6)
    trained = loaded.module(client).state_dict()
    torch.testing.assert_close(trained["identity.head.weight"], torch.eye(5))
    assert not torch.equal(*(next(iter(named.values())) for named in (trained, net.named_tensors(w))))


def test_a_module_in_place_of_a_function_is_refused():
    with pytest.raises(
        SpecError, match=r"expected a function, got a Sequential; pass a function of \(shape, classes\)"
    ):
        with_named_nets({"net": nn.Sequential(nn.Flatten(), nn.Linear(64, 5))})


def test_the_module_of_the_page_runs(monkeypatch: pytest.MonkeyPatch):
    text = (ROOT / "docs/nets.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```text\n(# mynets\.py.*?)```", text, re.DOTALL)
    page = types.ModuleType("page_nets")
    exec(compile(code, "docs/nets.md", "exec"), page.__dict__)
    monkeypatch.setitem(sys.modules, "page_nets", page)
    net = build_net({"name": "module", "factory": "page_nets:make", "options": {"width": 16}}, (1, 8, 8), 5)
    assert net.features_size == 16
    assert net.parameters == (9 * 16 + 16) + 2 * 16 + (16 * 5 + 5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({**MAKE, "factory": "mynets:absent"}, r"train\.net\.factory: 'mynets:absent': .*has no attribute 'absent'"),
        ({**MAKE, "factory": "absent_file:make"}, r"train\.net\.factory: 'absent_file:make': .*No module named"),
        ("module", r"train\.net: .*'factory' is missing"),
        ({**MAKE, "init": "xavier"}, "`init` does nothing"),
    ],
)
def test_a_factory_that_cannot_be_found_is_refused(spec: Any, message: str):
    with pytest.raises(SpecError, match=message):
        build_net(spec, (1, 8, 8), 5)
    with pytest.raises(SpecError, match="has no name; define a function at the top level of a module"):
        with_named_nets({"net": partial(mynets.make, hidden=3)})


# the workflow: the user's file counts as code


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the code with a user's net, which imports another file of the user."""
    code = tmp_path / "code"
    for package in ("fednoise_core", "workflow_scripts"):
        shutil.copytree(ROOT / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
    (code / "layers.py").write_text("WIDTH = 3\n")
    text = Path(mynets.__file__).read_text(encoding="utf-8").replace("hidden: int = 64", "hidden: int = layers.WIDTH")
    (code / "theirnets.py").write_text(text.replace("import torch\n", "import layers\nimport torch\n", 1))
    return code


def test_the_users_files_decide_what_runs_again(project: Path):
    net = {"net": {"name": "module", "factory": "theirnets:make"}}
    assert net_code({"net": [net["net"], "mlp"]}) == ["module", "mlp", "theirnets:make"]

    def code() -> str:
        steps = StepCode(project)
        return steps.hash_entries(steps.step_entries("training_run", method=["fedavg"], net=net_code(net)))

    first = code()
    assert {"theirnets.py", "layers.py"} <= set(
        read_modules(project, StepCode(project).step_entries("training_run", method=["fedavg"], net=net_code(net)))
    )
    (project / "layers.py").write_text("WIDTH = 3  # a comment\n")
    assert code() == first
    (project / "layers.py").write_text("WIDTH = 4\n")
    assert code() != first
    with pytest.raises(SpecError, match=r"expected a module in the project's folder, got 'absent:make'"):
        StepCode(project).step_entries("training_run", method=["fedavg"], net=["module", "absent:make"])
