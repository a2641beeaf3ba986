"""The Python interface: a wrong argument is one SpecError or TypeError that names it, before any work."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
import toy

import fednoise_core as fn
from fednoise_core.io import SpecError
from fednoise_core.methods.fedavg import FedAvg
from workflow_scripts.steps import noise, partition

WRONG = [None, -1, 1.5, "", [], {}, object(), np.zeros(3), True, math.nan, math.inf, b"x", ("a",), {"a": 1}, {1: 2}]
ONE_ROUND = {"rounds": 1, "epochs": 1, "fraction": 0.5}


@functools.cache
def data() -> fn.Arrays:
    return fn.dataset({"source": "digits", "subset": {"train": 200, "test": 20}})


@functools.cache
def labels() -> fn.Labels:
    return fn.inject(data(), {"kind": "symmetric", "rate": 0.2}, 0)


@functools.cache
def split() -> fn.Partition:
    return fn.partition_of(data(), {"kind": "iid", "clients": 4}, 0)


def run(**change: Any) -> Any:
    defaults = {"arrays": data(), "labels": labels(), "partition": split(), "method": "fedavg", "train": ONE_ROUND}
    return fn.run(**defaults | change)


def refused(call: Any, name: str, wrong: list[Any]) -> None:
    for value in wrong:
        with pytest.raises((SpecError, TypeError)) as caught:
            call(value)
        message = str(caught.value)
        assert message.startswith(name), (value, message)
        assert "\n" not in message


def without(*right: Any) -> list[Any]:
    return [value for value in WRONG if not any(value is item for item in right)]


def make_arrays(**change: Any) -> fn.Arrays:
    few = data().take(np.arange(60))
    return fn.arrays(**{"x": few.x_train, "y": few.y_train, "test": (few.x_test, few.y_test), **change})


FOREIGN = {"kind": "openset_images", "rate": 0.1, "donor": "x"}
OPENSET = {"kind": "openset", "clients": 3, "mode": "uniform"}
EMPTY, NONE, TRUE, TEXT = WRONG[5], None, True, ""
CALLS = [
    ("dataset", lambda v: fn.dataset(v), WRONG),
    ("places", lambda v: fn.dataset("digits", v), [3, "x", {}, [3]]),
    ("cache", lambda v: fn.dataset("digits", (), v), without(TEXT)),
    ("data", lambda v: fn.inject(v, "none", 0), without(TEXT)),
    ("noise", lambda v: fn.inject(data(), v, 0), WRONG),
    ("seed", lambda v: fn.inject(data(), "none", v), WRONG),
    ("partition", lambda v: fn.inject(data(), "none", 0, v), without(NONE)),
    ("donor", lambda v: fn.inject(data(), FOREIGN, 0, None, v), without(NONE, TEXT)),
    ("donor", lambda v: fn.inject(data(), "none", 0, None, v), without(NONE, TEXT)),  # also where it is not used
    ("data", lambda v: fn.partition_of(v, "natural", 0), without(TEXT)),
    ("partition", lambda v: fn.partition_of(data(), v, 0), WRONG),
    ("seed", lambda v: fn.partition_of(data(), {"kind": "iid", "clients": 3}, v), WRONG),
    ("labels", lambda v: fn.partition_of(data(), OPENSET, 0, v), without(NONE)),
    ("labels", lambda v: fn.partition_of(data(), {"kind": "iid", "clients": 3}, 0, v), without(NONE, WRONG[7])),
    ("folder", lambda v: fn.load(v), without(TEXT)),
    ("factory", lambda v: fn.load("nowhere", factory=v), without(NONE, TEXT)),
    *((name, lambda v, name=name: make_arrays(**{name: v}), WRONG) for name in ("x", "y", "test")),
    *((name, lambda v, name=name: make_arrays(**{name: v}), without(NONE)) for name in ("classes", "public")),
    ("clean_known", lambda v: make_arrays(clean_known=v), without(TRUE)),
    *((name, lambda v, name=name: run(**{name: v}), WRONG) for name in ("arrays", "labels", "partition")),
    ("progress", lambda v: run(progress=v), without(NONE, TRUE, TEXT)),
    ("on_round", lambda v: run(on_round=v), without(NONE)),
    *((name, lambda v, name=name: run(**{name: v}), WRONG) for name in ("seed", "device")),
    ("method", lambda v: run(method=v), WRONG),
    ("method.name", lambda v: run(method={"name": v}), WRONG),
    ("train", lambda v: run(train=v), without(NONE, EMPTY)),
    ("train", lambda v: run(method=FedAvg(train=fn.Train()), train=v), without(NONE, EMPTY)),
    *((name, lambda v, name=name: run(**{name: v}), without(NONE)) for name in ("donor", "saving", "out", "spec")),
    ("executor", lambda v: run(executor=v), WRONG),
    ("label", lambda v: run(label=v), without(TEXT)),
    ("label", lambda v: run(label=v, progress=True), without(TEXT)),
    ("threads", lambda v: run(threads=v), WRONG),
]


@pytest.mark.parametrize(("name", "call", "wrong"), CALLS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_argument_is_named(name, call, wrong):
    assert sum(len(values) for *_, values in CALLS) > 400
    refused(call, name, wrong)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(fn.Train)])
def test_a_training_setting_that_no_file_could_hold_is_refused_before_training(field):
    for value in (math.inf, -math.inf, math.nan, object(), np.zeros(2)):
        with pytest.raises(SpecError, match=rf"train[.: ].*{field}"):
            run(train={**ONE_ROUND, field: value})


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"lr": math.inf}, r"train\.lr: "),
        ({"augment": {"name": "crop", "pad": -1}}, r"train\.augment\.pad: "),
        ({"augment": {"name": "crop", "pad": 9}}, r"train\.augment\.pad for images of 8x8: "),
        ({"augment": "colour"}, r"train\.augment: changes of colour need images of 3 channels, these have 1"),
        ({"augment": {"name": ["crop"]}}, r"train\.augment\.name: unknown augment \[.crop.\]"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_training(train, message):
    with pytest.raises(SpecError, match=message):
        run(train={**ONE_ROUND, **train})


def test_a_name_stands_for_its_settings():
    np.testing.assert_array_equal(fn.dataset("digits").x_train, fn.dataset({"source": "digits"}).x_train)
    np.testing.assert_array_equal(fn.inject(data(), "none", 0).noisy, data().y_train)
    by_numpy = fn.inject(data(), {"kind": "symmetric", "rate": np.float64(0.2), "noise_seed": np.int64(3)}, np.int64(0))
    assert by_numpy.spec["noise"] == {"kind": "symmetric", "rate": 0.2, "noise_seed": 3}
    assert type(by_numpy.spec["noise"]["noise_seed"]) is int  # otherwise the file could not be written
    with pytest.raises(SpecError, match="noise: the key 'rate' is missing"):
        fn.inject(data(), "symmetric", 0)
    with pytest.raises(SpecError, match=r"noise: the key 'sparsity' is missing: Share .* are kind semantic\."):
        fn.inject(data(), {"kind": "asymmetric", "rate": 0.4}, 0)
    with pytest.raises(SpecError, match="partition natural: this data set has no client ids"):
        fn.partition_of(data(), "natural", 0)
    with pytest.raises(SpecError, match=r"source: unknown dataset 'cifar'; did you mean 'cifar10"):
        fn.dataset("cifar")


def test_whole_numbers_as_keys_are_those_of_yaml():
    labels = [fn.inject(data(), {"kind": "semantic", "rate": 1, "map": {key: 1}}, 0) for key in (0, np.int64(0), "0")]
    assert all(np.array_equal(result.noisy, labels[2].noisy) and result.spec == labels[2].spec for result in labels)
    with pytest.raises(SpecError, match="the keys 0, '0' are not all different"):
        fn.inject(data(), {"kind": "semantic", "rate": 1, "map": {0: 1, "0": 2}}, 0)
    with pytest.raises(SpecError, match="expected texts as keys"):
        fn.inject(data(), {"kind": "semantic", "rate": 1, "map": {0.5: 1}}, 0)


@pytest.mark.parametrize("key", ["rounds", "epochs", "batch", "eval_every", "eval_last", "eval_batch"])
def test_numbers_beyond_all_use_are_refused(key):
    with pytest.raises(SpecError, match=rf"train.{key}: expected .*1000000"):
        run(train={"net": "mlp", key: 10**30})


def test_batches_of_one_are_refused_where_a_net_cannot_normalise_them():
    with pytest.raises(SpecError, match=r"^train\.batch: batch norm cannot take single images"):
        run(train={**ONE_ROUND, "net": "resnet10", "batch": 1})


@pytest.mark.parametrize("setting", ["precision", "eval_precision"])
def test_bf16_on_a_processor_without_it_is_warned_of(monkeypatch, setting):
    capabilities = {"avx512_f": True, "avx512_bf16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    with pytest.warns(UserWarning, match=r"^train\.precision: this processor has no instructions for bf16"):
        run(train={**ONE_ROUND, "net": "mlp", setting: "bf16"})
    run(train={**ONE_ROUND, "net": "mlp"})  # pytest turns a warning into an error
    capabilities["avx512_bf16"] = True
    run(train={**ONE_ROUND, "net": "mlp", setting: "bf16"})


def test_an_unknown_argument_and_device_are_named():
    with pytest.raises(TypeError, match=r"run.. got an unexpected keyword argument 'exectuor'.*executor"):
        run(exectuor="auto")
    with pytest.raises(TypeError, match="known: ") as caught:
        run(zzz=1)
    assert "saving" in str(caught.value)
    assert not any(name in str(caught.value) for name in ("pool", "room", "made"))
    with pytest.raises(SpecError, match="device: 'cuda:99', but torch finds"):
        run(device="cuda:99")
    with pytest.raises(SpecError, match="device: expected cpu, cuda or cuda:N, got 'gpu'"):
        run(device="gpu")


def test_a_plain_array_is_taken_as_labels():
    array = (data().y_train + 1) % 10
    with_set = dataclasses.replace(data(), given={"mine": array})
    by_set = run(arrays=with_set, labels=fn.inject(with_set, "given", 0))
    by_hand = run(labels=array.astype(np.uint8))
    assert by_hand.summary["diagnostics"] == by_set.summary["diagnostics"]
    assert by_hand.summary["diagnostics"]["noise_rate"] == 1.0
    assert by_hand.curve == by_set.curve
    drawn = fn.partition_of(data(), OPENSET, 0, labels().noisy)
    np.testing.assert_array_equal(drawn.index, fn.partition_of(data(), OPENSET, 0, labels()).index)
    unsure = dataclasses.replace(data(), clean_known=False)
    assert run(arrays=unsure, labels=array).summary["diagnostics"]["noise_rate"] is None
    for wrong, message in (
        (array[:-1], r"labels: got an array int64 \[199\]; integers \[200\], one per image"),
        (array + 1, r"labels: they are 1\.\.10; this data set's classes are 0\.\.9"),
        (array / 2, r"labels: got an array float64"),
    ):
        with pytest.raises(SpecError, match=message):
            run(labels=wrong)
        with pytest.raises(SpecError, match=message):
            fn.partition_of(data(), OPENSET, 0, wrong)


def test_labels_and_partition_of_other_data_are_refused():
    other_data = fn.dataset({"source": "digits", "subset": {"train": 200, "test": 20}, "split_seed": 5})
    unsure, iid = dataclasses.replace(data(), clean_known=False), {"kind": "iid", "clients": 4}
    given_labels = fn.inject(unsure, "given", 0)
    assert run(arrays=unsure, labels=given_labels).summary["rounds"] == 1
    for change, message in (
        ({"arrays": other_data}, r"labels: made for other arrays: \d+ of 200 clean labels differ"),
        (
            {"arrays": dataclasses.replace(other_data, clean_known=False), "labels": given_labels},
            "labels: made for other arrays",
        ),
        ({"partition": fn.partition_of(data().take(np.arange(100)), iid, 0)}, "partition: made for 100 training"),
        ({"partition": fn.partition_of(other_data, iid, 0)}, "partition: made for other arrays"),
        ({"partition": dataclasses.replace(split(), offsets=split().offsets[::-1])}, "partition: .*offsets must rise"),
        ({"labels": dataclasses.replace(labels(), rate=0.9)}, "labels: rate says"),
    ):
        with pytest.raises(SpecError, match=message):
            run(**change)
    with pytest.raises(SpecError, match="partition: made for other arrays"):
        fn.inject(data(), "none", 0, fn.partition_of(other_data, iid, 0))


def test_the_commands_say_a_wrong_spec_in_one_line(tmp_path, capsys):
    data().save(tmp_path / "a.npz")
    files = ["--arrays", str(tmp_path / "a.npz"), "--out", str(tmp_path / "out.npz"), "--seed", "0"]
    for command in (noise, partition):
        for spec in ('{"kind": [1]}', '{"kind": "iid", "clients": NaN}'):
            assert command.main(["--spec", spec, *files]) == 2
            assert len(capsys.readouterr().err.splitlines()) == 1
    assert fn.inject(tmp_path / "a.npz", "none", 0).spec == fn.inject(data(), "none", 0).spec
    assert fn.inject(data(), "none", 0).spec["data"] != fn.inject(data().take(np.arange(9)), "none", 0).spec["data"]


def test_a_run_leaves_torchs_switches_as_they_were():
    tiny, threads = torch.tensor([1e-310], dtype=torch.float64), torch.get_num_threads()
    toy.play("fedavg", rounds=1)
    with pytest.raises(SpecError, match="executor"):
        toy.play("fedavg", executor="nosuch")
    assert tiny * 1 > 0
    assert torch.get_num_threads() == threads


def test_reprs_are_one_line():
    assert repr(data()) == "<Arrays digits 200 training and 20 test images 8x8, 250 public, 10 classes>"
    assert repr(labels()) == f"<Labels symmetric: 200 of 10 classes, {100 * labels().rate:.1f} % wrong>"
    assert repr(split()) == "<Partition iid: 4 clients with 50 to 50 of 200 samples>"
