"""fn.run and fn.load: finished runs that predict and are saved, progress, callbacks, methods of one's own."""

import dataclasses
import functools
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
import torchvision
import toy
from pydantic import Field
from safetensors.torch import load_file

import fednoise_core as fn
from fednoise_core.data.arrays import ArraysError
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.train import Train

NAMES = ("ant", "bee", "cat", "dog", "emu")
SHORT = {"net": {"name": "small_cnn", "width": 4}, "rounds": 2, "fraction": 0.5, "lr": 0.1, "batch": 4}


def play(method: Any = "fedavg", train: Any = SHORT, **options: Any) -> Any:
    data = dataclasses.replace(toy.arrays(), names=NAMES)
    return fn.run(data, toy.toy_labels(), toy.toy_partition(), method, train, **options)


@functools.cache
def plain() -> Any:
    return play()


# labels


def test_corrected_labels_take_the_proposals_above_a_probability():
    run, labels = plain(), toy.toy_labels().noisy
    p_wrong, proposed = {}, {}
    for sample, _, p, label in run.suspects:
        if p > p_wrong.get(sample, -1.0):
            p_wrong[sample], proposed[sample] = p, label
    middle = sorted(p_wrong.values())[len(p_wrong) // 2]
    for above in (0.5, middle):
        changed = {sample for sample, p in p_wrong.items() if p > above}
        expected = [proposed[i] if i in changed else label for i, label in enumerate(labels.tolist())]
        np.testing.assert_array_equal(run.corrected(above), expected)
    np.testing.assert_array_equal(run.corrected(), run.corrected(0.5))
    np.testing.assert_array_equal(run.corrected(1.0), labels)
    assert 0 < (run.corrected(middle) != labels).sum() < len(labels)
    for wrong in (1.5, -0.1, float("nan"), "wrong", True):
        with pytest.raises(SpecError, match="above: expected number, 0 ≤ x ≤ 1, got"):
            run.corrected(wrong)


# models


def test_predictions_are_those_that_the_accuracy_was_measured_by():
    data, run = toy.arrays(), plain()
    predictions = run.predict(data.x_test)
    assert (predictions.labels == data.y_test).mean() == pytest.approx(run.summary["accuracy"]["last"])
    assert predictions.probabilities.shape == (len(data.y_test), 5)
    np.testing.assert_allclose(predictions.probabilities.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(predictions.probabilities.argmax(1), predictions.labels)
    assert predictions.named == [NAMES[label] for label in predictions.labels]
    for wrong, message in (
        (data.x_test / 255, "images is float64; images are integers"),
        (data.x_test[:, :7], r"images: expected \(8, 8\) as in training, got \(7, 8\)"),
        (data.x_test[0], r"images has shape \(8, 8\)"),
    ):
        with pytest.raises((ArraysError, SpecError), match=message):
            run.predict(wrong)


def test_the_module_normalises_names_classes_and_trains_on():
    data, module = toy.arrays(), plain().module()
    assert module.class_names == NAMES
    assert not module.training
    x = torch.from_numpy(data.x_test)[:, None]
    torch.testing.assert_close(module(x), module(x.float() / 255))
    assert sum(p.numel() for p in module.parameters()) == plain().summary["parameters"][0]
    assert not any(name in module.state_dict() for name in ("mean", "std"))
    before, y = {n: t.clone() for n, t in module.state_dict().items()}, torch.from_numpy(data.y_test)
    optimiser = torch.optim.SGD(module.train().parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(module(x), y).backward()
    optimiser.step()
    assert all(not torch.equal(before[name], now) for name, now in module.state_dict().items())
    untouched = plain().module().state_dict()
    assert all(torch.equal(before[name], now) for name, now in untouched.items())


def test_a_saved_run_is_loaded_unchanged(tmp_path: Path):
    run, x = plain(), toy.arrays().x_test
    run.save(tmp_path / "run")
    back = fn.load(tmp_path / "run")
    assert back.summary == run.summary
    assert back.curve == run.curve
    np.testing.assert_allclose(back.predict(x).probabilities, run.predict(x).probabilities, rtol=1e-5)
    assert back.module().class_names == NAMES
    with pytest.raises(ArtifactError, match=r"nowhere.*summary\.json: no such file; name the folder of a finished run"):
        fn.load(tmp_path / "nowhere")
    file = tmp_path / "run/model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ArtifactError, match=r"model\.safetensors: damaged"):
        back.predict(x)


def test_a_run_and_its_module_can_be_pickled():
    run, x = plain(), toy.arrays().x_test
    back, module = pickle.loads(pickle.dumps((run, run.module())))
    assert back.curve == run.curve
    np.testing.assert_array_equal(back.predict(x).probabilities, run.predict(x).probabilities)
    images = torch.from_numpy(x)[:, None]
    assert torch.equal(module(images), run.module()(images))


def test_a_stopped_run_goes_on_from_its_checkpoint_and_no_other_run_does(tmp_path: Path):
    method, train = toy.settings("fedavg", rounds=4)
    asked = iter([False, True])

    def play(labels: fn.Labels, path: str = "mine.ckpt", data: Any = None, **saving: Any) -> Any:
        saved = fn.Saving(str(tmp_path / path), **saving)
        return fn.run(data or toy.arrays(), labels, toy.toy_partition(), method, train, saving=saved)

    with pytest.raises(fn.Stopped, match="paused after round 2"):
        play(toy.toy_labels(), stop=lambda: next(asked))
    assert play(toy.toy_labels(), key="edited").outcome.resumed == 0
    run = play(toy.toy_labels())
    assert run.outcome.resumed == 2
    assert run.curve == fn.run(toy.arrays(), toy.toy_labels(), toy.toy_partition(), method, train).curve
    clean = fn.Labels.of(toy.arrays().y_train, toy.arrays().y_train, toy.arrays().classes, True)
    assert play(clean).outcome.resumed == 0
    for part in ("x_train", "x_test"):
        mirrored = dataclasses.replace(toy.arrays(), **{part: getattr(toy.arrays(), part)[:, :, ::-1].copy()})
        assert play(toy.toy_labels(), data=mirrored).outcome.resumed == 0
    assert play(toy.toy_labels()).outcome.resumed == 2
    for path in (".", "absent/mine.ckpt"):
        with pytest.raises(SpecError, match="saving: expected the path of a file in an existing folder"):
            play(clean, path)


def test_models_of_each_client_and_of_several_nets(tmp_path: Path):
    data = toy.arrays()
    local = toy.subject("local")
    run = play(dict(local.method), {**local.train, **SHORT})
    with pytest.raises(SpecError, match="there is no model for all; there are models of the clients 0, 1, 3"):
        run.predict(data.x_test)
    with pytest.raises(SpecError, match="client: there is no model of client 99; there are models of"):
        run.module(99)
    views = {c: v for _, _, _, view, c, m, v in run.outcome.record.metrics if m == "accuracy" and c >= 0}
    run.save(tmp_path)
    for client in (0, 3):
        for source in (run, fn.load(tmp_path)):
            right = (source.predict(data.x_test, client).labels == data.y_test).mean()
            assert right == pytest.approx(views[client])
    with pytest.raises(SpecError, match="there is no model of client 0; there are one model for all; leave"):
        plain().module(0)
    coteaching = play({"name": "coteaching", "forget_rate": 0.2})
    x = torch.from_numpy(data.x_test)[:, None]
    members = coteaching.module().members
    assert len(members) == 2
    torch.testing.assert_close(coteaching.module()(x), members[0](x) + members[1](x))


SMALL = {"name": "small_cnn", "width": 2, "hidden": 6, "norm": True}
ALONE = """
import json, sys, numpy as np, torch
for name in sys.argv[1:]:
    names = {"class_names.json": ""}
    model = torch.export.load(f"{name}.pt2", extra_files=names).module()
    np.save(f"{name}.npy", model(torch.from_numpy(np.load("images.npy"))).detach().numpy())
    print(json.loads(names["class_names.json"]))
assert "fednoise_core" not in sys.modules
"""


def test_torch_alone_runs_what_is_exported(tmp_path: Path):
    """A net of the package, and several models of a net of one's own."""
    nets = {"fedavg": SMALL, "cross_fitted": {"name": "module", "factory": "mynets:Normed"}}
    runs = {name: play(method=name, train={**SHORT, "net": net}) for name, net in nets.items()}
    images = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    np.save(tmp_path / "images.npy", images.numpy())
    for name, run in runs.items():
        run.save_torch(tmp_path / f"{name}.pt2")
    command = [sys.executable, "-c", ALONE, *runs]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(list(NAMES))] * 2
    for name, run in runs.items():
        with torch.inference_mode():
            expected = run.module()(images).numpy()
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected, atol=1e-5)


def test_a_resnets_tensors_load_into_torchvisions(tmp_path: Path):
    """They load strictly, from the file and from the module, with the head under torchvision's name."""
    arrays = toy.arrays()
    wide = dataclasses.replace(
        arrays,
        x_train=np.repeat(arrays.x_train[..., None], 3, 3),
        x_test=np.repeat(arrays.x_test[..., None], 3, 3),
        x_public=None,
        mean=arrays.mean * 3,
        std=arrays.std * 3,
    )
    train = {"net": {"name": "resnet18", "stem": "7x7"}, "rounds": 1, "epochs": 1, "fraction": 0.2, "batch": 8}
    run = fn.run(wide, toy.toy_labels(), toy.toy_partition(), "fedavg", train, out=tmp_path)
    theirs = torchvision.models.resnet18(num_classes=5).eval()
    x = torch.from_numpy(wide.x_test).permute(0, 3, 1, 2)
    for tensors in (load_file(tmp_path / "model.safetensors"), run.module().state_dict()):
        torch.nn.init.zeros_(theirs.fc.weight)
        assert theirs.load_state_dict(dict(tensors)) is not None
        normalised = (x / 255 - torch.tensor(wide.mean)[:, None, None]) / torch.tensor(wide.std)[:, None, None]
        torch.testing.assert_close(run.module()(x), theirs(normalised), rtol=1e-3, atol=1e-4)
    start = {"name": "resnet18", "stem": "7x7", "weights": str(tmp_path / "model.safetensors")}
    again = fn.run(wide, toy.toy_labels(), toy.toy_partition(), "fedavg", {**train, "net": start, "lr": 0.0})
    assert again.curve[0][1] == run.curve[-1][1]  # the file gives the start, with its head


# progress and callbacks


def test_a_callback_gets_every_rounds_metrics():
    rows: list[dict[str, Any]] = []
    run = play("fedavg", {**SHORT, "rounds": 3, "eval_every": 2}, on_round=rows.append)
    assert [(row["round"], row["of"], row["phase"]) for row in rows] == [(r, 3, "train") for r in (1, 2, 3)]
    evaluated = [row for row in rows if "accuracy" in row]
    assert [(row["round"], row["accuracy"]) for row in evaluated] == run.curve[1:]
    assert rows[0]["views"] == {}
    assert evaluated[0]["views"]["global"]["loss"] == evaluated[0]["loss"]
    assert sum(row["bytes_up"] for row in rows) == run.summary["bytes_up"]
    assert rows[-1]["work"] == run.summary["work"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "options", "bar"),
    [
        (Terminal, {}, "accuracy"),
        (io.StringIO, {}, ""),
        (io.StringIO, {"progress": True}, "2/2"),
        (Terminal, {"on_round": lambda row: None}, "2/2"),
        (Terminal, {"progress": False}, ""),
        (Terminal, {"progress": "lines.jsonl"}, ""),
        (Terminal, {"console": io.StringIO()}, ""),
    ],
)
def test_a_terminal_shows_a_bar_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stream: type[io.StringIO], options: dict[str, Any], bar: str
):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # the notebook's tests may have imported it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stderr", stream())
    play(**options)
    output = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert bar in output
    assert bool(output) is bool(bar)
    assert Path("lines.jsonl").exists() is ("lines.jsonl" in options.values())


def test_without_a_trusted_test_set_the_bar_says_agreement(capsys: pytest.CaptureFixture[str]):
    data = dataclasses.replace(toy.arrays(), test_known=False)
    run = fn.run(data, toy.toy_labels(), toy.toy_partition(), "fedavg", SHORT, progress=True)
    output = capsys.readouterr().err
    assert f"agreement with given labels {100 * run.curve[-1][1]:.2f} %" in output
    assert "accuracy" not in output + repr(run)


# methods of one's own


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pulled(FedAvg):
    """FedProx, written by a user."""

    mu: Annotated[float, Field(ge=0, description="Weight of the pull.")] = 0.0

    def correct_gradient(self, grad: Any, w: Any, broadcast: Any, client_state: Any) -> None:
        grad.add_(w.trained.detach() - broadcast["model"].trained, alpha=self.mu)


@pytest.mark.parametrize("executor", ["sequential", "workers:2"])
def test_a_class_or_an_object_is_a_method(executor: str):
    def end(method: Any, train: Any = SHORT) -> torch.Tensor:
        return play(method, train, executor=executor).outcome.state.server["model"].flat

    expected = end({"name": "fedprox", "mu": 0.5})
    assert not torch.equal(expected, end("fedavg"))
    assert torch.equal(end(Pulled), end("fedavg"))
    assert torch.equal(end({"name": Pulled, "mu": 0.5}), expected)
    assert torch.equal(end(Pulled(train=Train(**SHORT), mu=0.5), None), expected)
    assert torch.equal(end(Pulled(train=Train(**SHORT), mu=0.5), SHORT), expected)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Inside(Pulled):
        """A class that no import can find."""

    if executor == "workers:2":
        with pytest.raises(TypeError, match="stand at the top level of a module"):
            end(Inside)
    else:
        assert torch.equal(end({"name": Inside, "mu": 0.5}), expected)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outdated(FedAvg):
    """Its only function is no hook."""

    def merge(self, fed: Any, state: Any) -> None:
        state.server["model"] = None


def test_a_method_whose_functions_nobody_calls_is_refused():
    with pytest.raises(SpecError, match=r"^method: Outdated: it overrides none .* merge; the hooks are after_fit"):
        play(Outdated)


def test_a_method_of_ones_own_is_recorded_and_checked(tmp_path: Path):
    run = play(Pulled(train=Train(**SHORT), mu=0.5), None, out=tmp_path)
    assert run.spec["spec"]["method"] == {"name": f"{__name__}:Pulled", "mu": 0.5}
    assert run.spec["spec"]["train"]["rounds"] == 2
    assert fn.load(tmp_path).summary["run"]["method"] == f"{__name__}:Pulled"
    with pytest.raises(SpecError, match=r"method\.nu: unknown"):
        play({"name": Pulled, "nu": 1})
    with pytest.raises(SpecError, match=r"method\.mu: "):
        play({"name": Pulled, "mu": -1})
    with pytest.raises(SpecError, match="train: the method was made with other training settings"):
        play(Pulled(train=Train(**SHORT)), {**SHORT, "rounds": 5})
    with pytest.raises(TypeError, match="method: Path is not a subclass of fednoise_core"):
        play(Path)
    undecorated = type("Undecorated", (FedAvg,), {})
    with pytest.raises(TypeError, match=r"method: Undecorated: write @dataclass\(frozen=True, kw_only=True\)"):
        play(undecorated)


def test_a_method_gets_the_nominal_rate_of_the_labels():
    data = dataclasses.replace(toy.arrays(), names=NAMES)
    labels = fn.inject(data, {"kind": "symmetric", "rate": 0.3})
    method = {"name": "fedmixcon", "noise_rate": "oracle_nominal"}
    run = fn.run(data, labels, toy.toy_partition(), method, SHORT)
    assert run.spec["spec"]["method"]["noise_rate"] == 0.3
    with pytest.raises(
        SpecError, match=r"^method\.noise_rate: no nominal rate of these labels is known\. Give a number"
    ):
        fn.run(data, labels.noisy, toy.toy_partition(), method, SHORT)
