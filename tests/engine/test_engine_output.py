"""Evaluation, the result files, and runs whose inputs are unusual or wrong."""

import csv
import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import toy
from safetensors import safe_open
from safetensors.torch import load_file

from fednoise_core.api.simulate import run_federation
from fednoise_core.engine import models
from fednoise_core.engine.client_store import ClientStore
from fednoise_core.engine.evaluate import ClientEntry, Evaluator, _name_scores, _score_logits, count_confusion
from fednoise_core.engine.executors.choose import executor_for
from fednoise_core.engine.federation import SERVER
from fednoise_core.engine.output import _is_at_chance, _to_plain, make_summary
from fednoise_core.engine.pool import Pool
from fednoise_core.io import SpecError, json_digest
from fednoise_core.label_errors.files import SITES, SUSPECTS, write_confusion
from fednoise_core.methods.coteaching import Coteaching
from fednoise_core.noise.registry import inject
from fednoise_core.ops.weights import Weights
from fednoise_core.testing.test_contract import FILES

# evaluation


def test_scores_by_hand():
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]])
    y = torch.tensor([0, 1, 0, 0])
    scores = _name_scores(_score_logits(logits, y, 3).tolist(), 3)
    a, b = math.log(math.e**2 + 2), math.log(3)
    assert scores["accuracy"] == 0.75  # the tie goes to class 0
    assert scores["loss"] == pytest.approx(((a - 2) * 2 + a + b) / 4)
    assert scores["accuracy_class_0"] == pytest.approx(2 / 3)
    assert scores["accuracy_class_1"] == 1.0
    assert "accuracy_class_2" not in scores


def test_images_count_once_however_many_models_predict_them():
    # two standard errors for 20 images of two classes are 2 sqrt(.25 / 20) = .22, and for 200 images .07
    assert [
        _is_at_chance(0.65, torch.full((2, 2), count), members) for count, members in ((50, 1), (50, 10), (0, 1))
    ] == [False, True, False]


def test_views_are_means_of_members_and_sums_of_logits():
    fed = toy.toy_federation()
    pool = Pool(toy.arrays().x_test, (0.25,), (0.2,))
    y = torch.from_numpy(toy.arrays().y_test)
    first, second = fed.init_weights("model"), fed.init_weights("model", 2)
    views = {
        "both": [(SERVER, first), (SERVER, second)],
        "ensemble": [(SERVER, [first, second])],
        "personal": [(3, second)],
    }
    evaluated = Evaluator(fed, pool, y).evaluate_views(views, ClientStore())
    rows = {(view, client, metric): value for view, client, metric, value in evaluated}
    x = (torch.from_numpy(toy.arrays().x_test).float()[:, None] / 255 - 0.25) / 0.2
    z = [fed.net().predict(w, x) for w in (first, second)]
    right = [float((logits.argmax(1) == y).double().mean()) for logits in (*z, z[0] + z[1])]
    assert rows["both", -1, "accuracy"] == pytest.approx((right[0] + right[1]) / 2)
    assert rows["ensemble", -1, "accuracy"] == pytest.approx(right[2])
    assert rows["personal", 3, "accuracy"] == rows["personal", -1, "accuracy"] == pytest.approx(right[1])
    loss = [torch.nn.functional.cross_entropy(logits, y).item() for logits in z]
    assert rows["both", -1, "loss"] == pytest.approx(sum(loss) / 2, rel=1e-5)
    assert {client for view, client, _ in rows if view != "personal"} == {-1}
    assert len({round(r, 6) for r in right}) > 1


def test_a_confusion_matrix_is_summed_over_members_and_none_without_numbers():
    fed, y = toy.toy_federation(), torch.from_numpy(toy.arrays().y_test)
    pool = Pool(toy.arrays().x_test, (0.25,), (0.2,))
    first, second = fed.init_weights("model"), fed.init_weights("model", 2)
    states = {3: {"own": second}}
    x = pool.take(torch.arange(pool.n))
    z = [fed.net().predict(w, x) for w in (first, second)]

    def count(*logits):
        counts = torch.zeros(fed.classes, fed.classes, dtype=torch.int64)
        for z in logits:
            for true, predicted in zip(y.tolist(), z.argmax(1).tolist(), strict=True):
                counts[true, predicted] += 1
        return counts

    confusion = count_confusion(fed, [(SERVER, first), (3, ClientEntry("own"))], states, pool, y)
    assert torch.equal(confusion, count(*z))
    assert torch.equal(count_confusion(fed, [(SERVER, [first, second])], {}, pool, y), count(z[0] + z[1]))
    assert len({tuple(count(logits).flatten().tolist()) for logits in (*z, z[0] + z[1])}) > 1
    assert not torch.equal(confusion, confusion.T), "rows and columns could be exchanged"
    second.flat.fill_(torch.nan)
    assert count_confusion(fed, [(SERVER, first), (SERVER, second)], {}, pool, y) is None


def test_the_confusion_matrixs_file(coteaching, tmp_path):
    out, run = coteaching
    with (out / "confusion.csv").open() as file:
        head, *rows = csv.reader(file)
    k = run.arrays.classes
    assert head == ["class", "name", *(f"predicted_{c}" for c in range(k))]
    assert [row[:2] for row in rows] == [[str(c), str(c)] for c in range(k)]
    assert [[int(n) for n in row[2:]] for row in rows] == run.outcome.confusion.tolist()
    formulas = dataclasses.replace(run.arrays, names=tuple(f"={c}" for c in range(k)))
    write_confusion(tmp_path / "named.csv", run.outcome.confusion, formulas)
    assert (tmp_path / "named.csv").read_text().splitlines()[1].startswith("0,'=0,")
    write_confusion(tmp_path / "none.csv", None, run.arrays)
    assert (tmp_path / "none.csv").read_text() == ",".join(head) + "\n"


def test_evaluation_in_pieces_gives_the_same_numbers():
    curves = [toy.play("fedavg", eval_batch=size).curve for size in (1000, 7)]
    assert curves[0] == curves[1]


def test_pool_normalises_grey_and_colour_from_memory_and_from_disk(tmp_path):
    draw = np.random.default_rng(0)
    for shape, mean, std in (((6, 4, 4), (0.5,), (0.25,)), ((6, 4, 4, 3), (0.5, 0.4, 0.3), (0.2, 0.1, 0.3))):
        images = draw.integers(0, 256, shape).astype(np.uint8)
        np.save(tmp_path / "x.npy", images)
        expected = (images.reshape(6, 4, 4, -1) / 255 - np.array(mean)) / np.array(std)
        for source in (images, np.load(tmp_path / "x.npy", mmap_mode="r")):
            pool = Pool(source, mean, std)
            assert pool.shape == (len(mean), 4, 4)
            index = torch.tensor([5, 0, 3])
            np.testing.assert_allclose(pool.take(index).numpy(), expected[[5, 0, 3]], atol=1e-5)
            assert [len(x) for x in pool.chunks(torch.arange(6), 4)] == [4, 2]
            assert next(pool.chunks(index, 9)).shape == (3, len(mean), 4, 4)


# files


@pytest.fixture(scope="module")
def coteaching(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return out, toy.play("coteaching", out=out)


def test_all_files_are_there_and_whole(coteaching):
    out, run = coteaching
    assert {p.name for p in out.iterdir()} == {*FILES, "cost.json"}
    assert json.loads((out / "summary.json").read_text()) == json.loads(json.dumps(run.summary))
    spec = json.loads((out / "spec.json").read_text())
    assert spec["spec"]["method"] == {"name": "coteaching", "forget_rate": 0.4, "ramp": 2}
    assert spec["spec"]["train"]["batch"] == 5
    assert run.summary["spec_digest"] == json_digest(spec["spec"])
    cost = json.loads((out / "cost.json").read_text())
    assert cost["seconds"] > 0
    assert cost["peak_memory_mb"] > 1
    assert (cost["executor"], cost["precision"]) == ("sequential", "fp32")
    assert {"torch", "numpy", "python", "fednoise_core"} <= cost["versions"].keys()


def test_columns_of_the_tables(coteaching):
    out, run = coteaching
    metrics, diagnostics = pq.read_table(out / "metrics.parquet"), pq.read_table(out / "diagnostics.parquet")
    assert metrics.schema == pa.schema(
        [
            ("round", pa.int32()),
            ("work", pa.float64()),
            ("phase", pa.string()),
            ("view", pa.string()),
            ("client", pa.int32()),
            ("metric", pa.string()),
            ("value", pa.float64()),
        ]
    )
    assert diagnostics.schema == pa.schema(
        [("round", pa.int32()), ("client", pa.int32()), ("metric", pa.string()), ("value", pa.float64())]
    )
    rows = metrics.to_pylist()
    curve = [
        (r["round"], r["value"]) for r in rows if (r["view"], r["client"], r["metric"]) == ("mean", -1, "accuracy")
    ]
    assert curve == run.curve
    assert [r for r, _ in curve] == [0, 1, 2, 3]
    assert {r["metric"] for r in rows} == {"accuracy", "loss", "bytes_up", "bytes_down", "clients"} | {
        f"accuracy_class_{k}" for k in range(5)
    }
    assert {r["view"] for r in rows} == {"", "mean", "ensemble"}
    for way in ("bytes_up", "bytes_down"):
        assert sum(r["value"] for r in rows if r["metric"] == way) == run.summary[way]


def test_the_summary_agrees_with_the_curve(coteaching):
    _, run = coteaching
    values = [v for _, v in run.curve]
    best = max(values[1:])
    assert (
        run.summary["accuracy"]
        == run.summary["views"]["mean"]
        == {
            "best": best,
            "best_round": values.index(best, 1),
            "last": values[3],
            "last10_mean": pytest.approx(sum(values[1:]) / 3),
            "round0": values[0],
        }
    )
    assert run.summary["headline_view"] == "mean"
    assert run.summary["rounds"] == 3
    both_nets = toy.count_passes((1, 2, 3), per_sample=2 * 2)  # 2 epochs of 2 nets
    assert run.summary["work"] == pytest.approx(both_nets / toy.A_ROUND, rel=1e-12)
    assert (run.summary["clients"], run.summary["samples"], run.summary["classes"]) == (8, 72, 5)
    assert run.summary["parameters"] == [64 * 6 + 6 + 6 * 5 + 5]
    assert run.summary["epsilon"] is None
    samples = slice(0, 72)
    rate = float((toy.toy_labels().noisy != toy.toy_labels().clean)[samples].mean())
    assert run.summary["diagnostics"]["noise_rate"] == pytest.approx(rate)
    assert {"suspects_precision", "suspects_recall"} <= run.summary["diagnostics"].keys()


def test_headline_is_of_the_last_ten_evaluations():
    run = toy.play("local", rounds=14, method={"pretrain": 0})
    values = [v for _, v in run.curve]
    assert len(values) == 15
    clients = {r[4] for r in run.outcome.record.metrics if r[3] == "personal"}
    assert clients == {-1, *run.outcome.fed.all}  # each client's, and their mean
    assert run.summary["accuracy"]["last10_mean"] == pytest.approx(sum(values[-10:]) / 10)
    run.outcome.record.metrics = [r for r in run.outcome.record.metrics if r[0] == 0]
    assert make_summary(run.outcome, {})["accuracy"]["best"] == values[0]  # only round 0


def test_suspects_are_listed_most_suspect_first(coteaching):
    out, run = coteaching
    with (out / "suspects.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(SUSPECTS)
    assert sorted(int(r["sample"]) for r in rows) == list(range(72))
    p = [float(r["p_wrong"]) for r in rows]
    assert p == sorted(p, reverse=True)
    assert 0 <= p[-1] < p[0] <= 1
    for row in rows:
        a, b = toy.client_bounds(int(row["client"]))
        assert a <= int(row["sample"]) < b
        assert row["source"] == row["sample"]
        assert row["site"] == row["client"]
        assert int(row["given"]) == toy.toy_labels().noisy[int(row["sample"])]
        assert row["given_name"] == row["given"] != row["proposed"] == row["proposed_name"]
        p = float(row["p_wrong"])
        assert row["verdict"] == ("wrong" if p > 0.5 else "check" if p > 0.2 else "keep")
        assert 0 <= float(row["p_proposed"]) <= p
    assert sorted(s for s, *_ in run.suspects) == list(range(72))


def test_scores_of_the_method_order_the_suspects_of_a_site(coteaching, monkeypatch):
    """They change the order only. The estimate says how many labels are wrong."""
    monkeypatch.setattr(Coteaching, "suspect_labels", lambda self, client, broadcast: None)
    pairs = list(zip(coteaching[1].outcome.suspects, toy.play("coteaching").outcome.suspects, strict=True))
    for scored, plain in pairs:
        np.testing.assert_array_equal(np.sort(scored.p_wrong), np.sort(plain.p_wrong))
    assert any((scored.p_wrong != plain.p_wrong).any() for scored, plain in pairs)


def test_sites_are_counted(coteaching):
    out, run = coteaching
    with (out / "sites.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(SITES)
    assert [int(row["client"]) for row in rows] == [0, 1, 3, 4, 5, 6, 7]  # client 2 has no samples
    for row, site in zip(rows, run.outcome.suspects, strict=True):
        assert int(row["samples"]) == toy.SIZES[int(row["client"])]
        low, wrong, high = (float(row[name]) for name in ("wrong_low", "wrong", "wrong_high"))
        assert 0 <= low <= wrong <= high <= int(row["samples"])
        assert wrong == pytest.approx(site.p_wrong.sum(), abs=0.051)
        assert float(row["share"]) == pytest.approx(site.p_wrong.mean(), abs=1e-4)
        assert int(row["verdict_wrong"]) == (site.p_wrong > 0.5).sum()
        assert int(row["verdict_check"]) == ((site.p_wrong > 0.2) & (site.p_wrong <= 0.5)).sum()


def test_an_untrained_model_lists_no_suspects(tmp_path):
    run = toy.play("fedavg", out=tmp_path, lr=1e-9)  # so the weights stay the initial ones
    assert (tmp_path / "suspects.csv").read_text() == ",".join(SUSPECTS) + "\n"
    assert (tmp_path / "sites.csv").read_text() == ",".join(SITES) + "\n"
    assert not any("suspects" in name for name in run.summary["diagnostics"])
    assert run.suspects == []


@pytest.mark.parametrize(
    ("name", "prefixes"),
    [
        ("fedavg", ["head.bias"]),
        ("coteaching", ["0/head.bias", "1/head.bias"]),
        ("local", ["client0/head.bias", "client3/conv1.weight"]),
    ],
)
def test_saved_models_predict(tmp_path, name, prefixes):
    run = toy.play(name, out=tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert set(prefixes) <= tensors.keys()
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["fednoise"])
    view = list(run.outcome.models(facts["view"]))
    assert len(facts["nets"]) == len(view)
    client, (w,) = view[-1]
    prefix = f"client{client}/" if client >= 0 else "1/" if len(view) > 1 else ""
    layout = run.outcome.fed.net(client).layout
    back = Weights(layout, torch.zeros(layout.size))
    for entry in layout.entries:
        back[entry.name].copy_(tensors[prefix + entry.name])
    assert torch.equal(back.flat, w.flat)


# inputs


def test_without_clean_labels_diagnostics_are_unknown_and_training_is_the_same(tmp_path):
    unknown = dataclasses.replace(toy.toy_labels(), clean=None, T_realised=None, rate=math.nan)
    with_truth, run = toy.play("fedcorr"), toy.play("fedcorr", labels=unknown, out=tmp_path)
    assert run.curve == with_truth.curve
    assert run.summary["clean_known"] is False
    for metric in ("noise_rate", "suspects_precision", "noisy_client_auroc"):
        assert run.summary["diagnostics"][metric] is None
        assert with_truth.summary["diagnostics"][metric] is not None
    rows = pq.read_table(tmp_path / "diagnostics.parquet").to_pylist()
    assert all(math.isnan(r["value"]) for r in rows if r["metric"] == "noise_rate")


def openset(donor: str):
    base = toy.toy_labels()
    spec = {**base.spec, "noise": {"kind": "openset_images", "rate": 0.1, "donor": donor}}
    return dataclasses.replace(
        base, noisy=base.clean, replaced=np.array([0, 5]), donor=np.array([3, 1]), rate=2 / toy.N, spec=spec
    )


def test_open_set_noise_refuses_another_donor_of_the_same_size():
    """Numbers of images alone would fit, and give other images without a word."""
    data, spec = toy.arrays(), {"kind": "openset_images", "rate": 0.1, "donor": "elsewhere"}
    other = dataclasses.replace(data, y_train=(data.y_train + 1) % data.classes)
    labels = inject(data, spec, 0, donor=data)
    run_federation(data, labels, toy.toy_partition(), "fedavg", toy.TRAIN, donor=data)
    with pytest.raises(SpecError, match=r"made with another donor; pass the data set that fn\.inject got"):
        run_federation(data, labels, toy.toy_partition(), "fedavg", toy.TRAIN, donor=other)


def test_open_set_noise_shows_images_of_the_donor_or_of_the_public_part():
    data = toy.arrays()
    other_data = dataclasses.replace(data, x_train=255 - data.x_train)
    for donor, images, donor_arrays in (("public", data.x_public, None), ("elsewhere", other_data.x_train, other_data)):
        run = run_federation(data, openset(donor), toy.toy_partition(), "fedavg", toy.TRAIN, donor=donor_arrays)
        seen = run.world.pool("train").raw(torch.tensor([0, 5, 1]))[..., 0].numpy()
        np.testing.assert_array_equal(seen, np.stack([images[3], images[1], data.x_train[1]]))
        assert run.summary["diagnostics"]["noise_rate"] == pytest.approx(2 / 72)
    with pytest.raises(SpecError, match="donor"):
        run_federation(data, openset("elsewhere"), toy.toy_partition(), "fedavg", toy.TRAIN)
    with pytest.raises(SpecError, match="public"):
        run_federation(
            dataclasses.replace(data, x_public=None), openset("public"), toy.toy_partition(), "fedavg", toy.TRAIN
        )


def test_validation_samples_are_not_trained_on():
    from fednoise_core.data.partition import Partition

    partition = toy.toy_partition()
    valid = np.zeros(len(partition.index), bool)
    valid[[0, 1, 2, 20]] = True  # three of client 0, one of client 3
    split = Partition.from_parts([partition.of(c) for c in range(8)], partition.spec, valid)
    run = toy.play("fedavg", split=split)
    assert run.summary["samples"] == 68
    assert run.outcome.fed.sizes[:4] == [14, 1, 0, 11]
    assert run.world.valid[0].tolist() == [0, 1, 2]
    assert run.world.index[0].tolist() == list(range(3, 17))

    def look(client, broadcast):
        return client.predict(broadcast["model"], on="valid")

    fed = run.outcome.fed
    logits = fed.run_on_clients(run.outcome.state, [0], look, {"model": run.outcome.state.server["model"]})[0]
    assert logits.shape == (3, 5)


def test_inputs_that_do_not_belong_together_are_refused():
    data, labels, split = toy.arrays(), toy.toy_labels(), toy.toy_partition()
    shorter = dataclasses.replace(labels, noisy=labels.noisy[:-1], clean=labels.clean[:-1])
    with pytest.raises(SpecError, match=r"75 labels of 5 classes for 76 training images"):
        run_federation(data, shorter, split, "fedavg", toy.TRAIN)
    far = dataclasses.replace(split, index=split.index + 10)
    with pytest.raises(SpecError, match=r"partition: .*index must lie in 0\.\.75"):
        run_federation(data, labels, far, "fedavg", toy.TRAIN)
    for train in (
        {"net": "nosuch"},
        {"net": []},
        {"net": None},
        {"net": 3},
        {"net": {"hidden": 3}},
        {"net": {"name": "mlp", "hiden": 3}},
    ):
        with pytest.raises(SpecError, match="net"):
            run_federation(data, labels, split, "fedavg", {**toy.TRAIN, **train})
    for name in ("nosuch", "workers:x"):
        with pytest.raises(SpecError, match="executor"):
            executor_for(toy.toy_world(), name)
    with pytest.raises(SpecError, match=r"train\.lr"):
        run_federation(data, labels, split, "fedavg", {"lr": -1})


def test_many_personal_models_do_not_fill_the_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "LIMIT", 3 * 4 * (64 * 6 + 6 + 6 * 5 + 5))
    toy.play("local", out=tmp_path, net={"name": "mlp", "hidden": 6})
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["fednoise"])
        assert {name.split("/")[0] for name in file.keys()} == {"client0", "client1", "client3"}  # noqa: SIM118
    assert facts["left_out"] == 4
    assert facts["nets"].keys() == {"client0", "client1", "client3"}


def test_a_note_that_overflowed_does_not_lose_the_run() -> None:
    """The summary is written last, as JSON, which has neither NaN nor infinity: a run must not end there."""
    assert _to_plain({"losses": [1.0, math.inf, -math.inf, math.nan], "round": 3}) == {
        "losses": [1.0, None, None, None],
        "round": 3,
    }
