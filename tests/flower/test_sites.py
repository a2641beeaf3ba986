"""The federation of sites, with the messages carried inside this process: what the sites compute is bit-equal."""

import dataclasses
import io
import itertools
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy

import fednoise_core as fn
from fednoise_core.api.simulate import run_federation
from fednoise_core.data.arrays import IMAGES
from fednoise_core.data.partition import Partition
from fednoise_core.engine.client import Client
from fednoise_core.engine.state import State
from fednoise_core.engine.suspects import judge_held_out
from fednoise_core.flower import executor
from fednoise_core.flower.folders import RunSettings, write_folders, write_server, write_site
from fednoise_core.flower.messages import RELEASE, SiteError, decode_message, describe_function, encode_message
from fednoise_core.flower.server import run_on_sites
from fednoise_core.flower.site import Site, answer_request
from fednoise_core.io import SpecError
from fednoise_core.methods import METHODS, make_method
from fednoise_core.noise.labels import Labels
from fednoise_core.ops.weights import Entry, Layout, Weights
from fednoise_core.testing import world
from fednoise_core.testing.compare import same_state
from fednoise_core.testing.subject import Subject
from workflow_scripts.commands import apply_decisions
from workflow_scripts.steps import labels_page

FEDAVG = {"class": "fednoise_core.methods.fedavg:FedAvg", "fields": {}}
ROOT = Path(__file__).parents[2]


class Desk:
    """Carries requests to sites in this process and counts bytes. Each site is built anew for each request."""

    def __init__(self, out: Path):
        self.out, self.down, self.up = out, 0, 0

    def __call__(self, requests, wait):
        answers = {client: answer_request(self.out / f"site-{client}", request) for client, request in requests.items()}
        self.down += sum(map(len, requests.values()))
        self.up += sum(map(len, answers.values()))
        return answers


def write_toy_sites(out: Path, method, train) -> None:
    write_folders(out, world.arrays(), world.toy_labels().noisy, world.toy_partition(), method, train, 0)


def collect_client_states(out: Path, state: State) -> dict:
    """The clients' states at the sites, in the versions that the server names."""
    return {c: Site(out / f"site-{c}").load_state(state.store.copy_for(c)["version"])[0] for c in state.store}


def assert_equal_to_simulation(subject: Subject, out: Path) -> None:
    simulated = subject.play()
    write_toy_sites(out, subject.method, subject.train)
    outcome = run_on_sites(out / "server", Desk(out), dict(enumerate(world.SIZES)))
    expected = simulated.outcome.state
    assert same_state(outcome.state.server, expected.server)
    assert same_state(outcome.state.notes, expected.notes)
    client_states = {c: expected.store.copy_for(c) for c in expected.store}
    assert same_state(collect_client_states(out, outcome.state), client_states)
    fed, expected_fed = outcome.fed, simulated.outcome.fed
    assert (fed.bytes_down, fed.bytes_up) == (expected_fed.bytes_down, expected_fed.bytes_up)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"centralised"}))
def test_every_method_is_bit_equal_to_the_simulation(name: str, tmp_path: Path):
    assert_equal_to_simulation(Subject(*toy.settings(name)), tmp_path)


def test_a_method_of_ones_own_is_bit_equal_to_the_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its module is installed at the server and at each site; one with another file is refused."""
    file = Path(shutil.copy(ROOT / "tests/support/contract_methods.py", tmp_path / "sites_method.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    _, train = toy.settings("fedavg")
    assert_equal_to_simulation(Subject({"name": "sites_method:Pulled", "mu": 0.5}, train), tmp_path / "out")
    settings = RunSettings.load(tmp_path / "out/site-0")
    digest = settings.digest
    file.write_text(file.read_text() + "\n")
    assert settings.digest != digest


@pytest.mark.parametrize("name", ["fedbn", "dividemix", "rhfl"])
@pytest.mark.parametrize("net", ["toy_norm_drop", "toy_norm_point"])
def test_statistics_and_dropout_are_bit_equal_to_the_simulation(name: str, net: str, toy_nets: None, tmp_path: Path):
    assert_equal_to_simulation(Subject(*toy.settings(name, net=net, lr=0.05)), tmp_path)


def test_a_site_lists_its_labels_by_models_that_have_not_seen_them(tmp_path: Path):
    """Corrected labels are judged by the labels given at first."""
    now = world.arrays().y_train
    arrays = dataclasses.replace(world.arrays(), first=world.toy_labels().noisy, clean_known=False)
    fields, train = toy.settings("cross_fitted", rounds=20, fraction=1.0)
    write_folders(tmp_path, arrays, now, world.toy_partition(), fields, train, 0)
    run_on_sites(tmp_path / "server", Desk(tmp_path), dict(enumerate(world.SIZES)))
    labels = Labels.of(now, now, arrays.classes, False)
    simulated = run_federation(arrays, labels, world.toy_partition(), fields, train, 0)
    method = make_method(fields, simulated.world.train)
    client = Client(simulated.world, 5, simulated.outcome.state.store.copy_for(5), None, 20)
    held_out = method.predict_held_out(client, {})
    (expected,) = judge_held_out(simulated.outcome.fed, {5: held_out})
    listed = pd.read_csv(tmp_path / "site-5/suspects.csv").sort_values("sample")
    np.testing.assert_allclose(listed["p_wrong"], expected.p_wrong[expected.samples.argsort()], atol=1e-6)
    assert {"out_of_scope", "near_copy"} < set(listed.columns)


def test_a_site_keeps_its_own_model_and_says_how_good_it_is(tmp_path: Path):
    """Its accuracy is agreement with given labels, since it has no test images."""
    partition = dataclasses.replace(world.toy_partition(), valid=np.arange(sum(world.SIZES)) % 4 == 0)
    sizes = {c: int((~partition.valid[slice(*partition.offsets[c : c + 2])]).sum()) for c in range(len(world.SIZES))}
    fields, train = toy.settings("local", rounds=5, fraction=1.0)
    write_folders(tmp_path, world.arrays(), world.toy_labels().noisy, partition, fields, train, 0)
    run_on_sites(tmp_path / "server", Desk(tmp_path), sizes)
    simulated = fn.run(world.arrays(), world.toy_labels(), partition, fields, train, progress=False)
    expected = simulated.summary["valid_accuracy"]
    right = total = 0
    for client in (0, 3, 4, 5, 6, 7):
        site, images = fn.load(tmp_path / f"site-{client}"), world.arrays().x_test
        assert (site.predict(images, client=client).labels == simulated.predict(images, client=client).labels).all()
        count = int(partition.valid[slice(*partition.offsets[client : client + 2])].sum())
        right, total = right + site.summary["accuracy"]["last"] * count, total + count
    assert right / total == pytest.approx(expected)


def test_sites_may_have_feature_vectors(tmp_path: Path):
    vectors = {name: getattr(world.arrays(), name).reshape(-1, 1, 1, 64) / np.float32(255) for name in IMAGES}
    arrays = dataclasses.replace(world.arrays(), **vectors, mean=(0.3,) * 64, std=(0.2,) * 64)
    fields, train = toy.settings("fedavg", net="linear")
    write_folders(tmp_path, arrays, world.toy_labels().noisy, world.toy_partition(), fields, train, 0)
    outcome = run_on_sites(tmp_path / "server", Desk(tmp_path), dict(enumerate(world.SIZES)))
    simulated = run_federation(arrays, world.toy_labels(), world.toy_partition(), fields, train, 0)
    assert same_state(outcome.state.server, simulated.outcome.state.server)


# failures


class FaultyDesk(Desk):
    """Changes answers: `faults` has (kind of request, client) -> a function of the answer. None: no answer."""

    def __init__(self, out: Path, faults):
        super().__init__(out)
        self.faults = faults

    def __call__(self, requests, wait):
        answers = super().__call__(requests, wait)
        for client, content in requests.items():
            fault = self.faults.get((decode_message(content)["kind"], client))
            if fault is not None:
                answers[client] = fault(decode_message(answers[client]))
        return {client: answer for client, answer in answers.items() if answer is not None}


def send_other_shape(answer):
    return encode_message({**answer, "update": {"model": answer["update"]["model"].flat[:-1]}})


def send_truncated_weights(answer):
    model = answer["update"]["model"]
    return encode_message({**answer, "update": {"model": model.like(model.flat[:-1])}})


def send_times(factor):
    return lambda answer: encode_message({**answer, "update": {"model": answer["update"]["model"] * factor}})


def send_strange_type(answer):
    """An answer of a type that torch cannot test for NaN."""
    return encode_message({**answer, "answer": torch.zeros(3).to(torch.float8_e4m3fn)})


NAN = "not finite, dropped: the update of clients 3"
HOSTILE = {
    "no answer before the deadline": lambda answer: None,
    "has the shapes": send_other_shape,
    "weights of shape [424], [425] expected": send_truncated_weights,
    NAN: send_times(math.nan),
    "beyond 1e+15": send_times(1e30),
    "is too large": lambda answer: bytes(executor.LIMIT * 2),
    "not a message": lambda answer: b"\x08" * 100,
    "'extra' is no update": lambda answer: encode_message({**answer, "update": {"extra": 1, **answer["update"]}}),
    "has no update": lambda answer: encode_message({"state": None}),
    "has no count of steps": lambda answer: encode_message({**answer, "steps": -1}),
    "has no count of passes": lambda answer: encode_message({**answer, "passes": 10**400}),
    "not a message (TypeError)": send_strange_type,
    "names no version": lambda answer: encode_message({**answer, "state": 7}),
    "it broke": lambda answer: encode_message({"problem": "it broke"}),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_an_answer_that_is_missing_or_hostile_is_left_out_and_the_round_goes_on(message: str, tmp_path: Path):
    fields, train = toy.settings("fedavg", fraction=1.0)
    write_toy_sites(tmp_path, fields, train)
    console = io.StringIO()
    desk = FaultyDesk(tmp_path, {("fit", 3): HOSTILE[message]})
    outcome = run_on_sites(tmp_path / "server", desk, dict(enumerate(world.SIZES)), console)
    assert message in console.getvalue() or "has the shapes" in console.getvalue()
    assert "the update of clients 3" in console.getvalue() or "left out: clients 3" in console.getvalue()
    dropped = [value for *_, metric, value in outcome.record.metrics if metric == "dropped_updates"]
    assert dropped == [1.0] * train["rounds"]


@pytest.mark.parametrize("message", sorted(HOSTILE.keys() - {"has the shapes", NAN}))
def test_a_hostile_answer_is_refused_too_if_there_is_no_other(message: str, tmp_path: Path):
    write_toy_sites(tmp_path, *toy.settings("fedavg", fraction=1.0))
    console = io.StringIO()
    faults = {("fit", client): lambda answer: None for client in range(len(world.SIZES))}
    faults[("fit", 3)] = HOSTILE[message]
    with pytest.raises(SiteError, match="round 1: no site gave an update"):
        run_on_sites(tmp_path / "server", FaultyDesk(tmp_path, faults), dict(enumerate(world.SIZES)), console)
    (line,) = (line for line in console.getvalue().splitlines() if line.startswith("client 3: "))
    assert message in line


def test_weights_have_the_layout_that_the_server_knows():
    """A hostile layout has 2.0 rows. That is equal to 2, but no tensor has such a shape."""
    layout = Layout([Entry("bias", (2,))])
    sent = encode_message({"model": Weights(Layout([Entry("bias", (2.0,))]), torch.zeros(2))})
    assert decode_message(sent, {layout})["model"]["bias"].shape == (2,)


def test_of_two_answers_that_differ_neither_is_used(tmp_path: Path):
    write_toy_sites(tmp_path, *toy.settings("fedavg", fraction=0.25))
    console, desk = io.StringIO(), Desk(tmp_path)

    def exchange(requests, wait):
        answers = desk(requests, wait)
        assert len(answers) == 2
        return {**answers, max(answers): send_other_shape(decode_message(answers[max(answers)]))}

    with pytest.raises(SiteError, match="no site gave an update"):
        run_on_sites(tmp_path / "server", exchange, dict(enumerate(world.SIZES)), console)
    assert console.getvalue().count("has the shapes") == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda answer: torch.ones(2), "its answer has the shapes"),
        (lambda answer: {**answer, "counts": answer["counts"] * 10.0**20}, "a number is beyond 1e+15"),
        (lambda answer: {**answer, "counts": answer["counts"] * math.nan}, "a number is not finite"),
    ],
)
def test_a_hostile_answer_of_a_function_ends_the_run(answer, message: str, tmp_path: Path):
    """The method needs the answers of all. An answer that was refused once is refused again when it comes alone."""
    write_toy_sites(tmp_path, *toy.settings("feddpcont"))
    console = io.StringIO()
    faults = {("call", 3): lambda reply: encode_message({**reply, "answer": answer(reply["answer"])})}
    with pytest.raises(SiteError, match="the round needs the answers of clients 3"):
        run_on_sites(tmp_path / "server", FaultyDesk(tmp_path, faults), dict(enumerate(world.SIZES)), console)
    assert console.getvalue().count(f"client 3: {message}") == executor.ATTEMPTS


def test_a_hostile_result_of_fits_in_lockstep_is_left_out(tmp_path: Path):
    write_toy_sites(tmp_path, *toy.settings("rhfl"))
    console = io.StringIO()
    faults = {("step", 3): lambda reply: encode_message({**reply, "finite": 7} if "update" in reply else reply)}
    run_on_sites(tmp_path / "server", FaultyDesk(tmp_path, faults), dict(enumerate(world.SIZES)), console)
    assert "client 3: the answer to a fit has no update" in console.getvalue()
    assert "left out: clients 3" in console.getvalue()


def test_a_site_that_is_gone_at_the_end_lacks_its_list_only(tmp_path: Path):
    write_toy_sites(tmp_path, *toy.settings("fedavg"))
    console = io.StringIO()
    desk = FaultyDesk(tmp_path, {("judge", 3): lambda answer: None})
    run_on_sites(tmp_path / "server", desk, dict(enumerate(world.SIZES)), console)
    assert "clients 3 wrote no suspects.csv" in console.getvalue()
    assert (tmp_path / "server/model.safetensors").is_file()


def test_a_lost_answer_that_the_round_needs_is_asked_for_again(tmp_path: Path):
    simulated = toy.play("scaffold").outcome.state
    fields, train = toy.settings("scaffold")
    write_toy_sites(tmp_path, fields, train)
    lost = iter([None] * 2)
    again = {("judge", 0): lambda answer: next(lost, encode_message(answer))}
    outcome = run_on_sites(tmp_path / "server", FaultyDesk(tmp_path, again), dict(enumerate(world.SIZES)))
    assert same_state(outcome.state.server, simulated.server)


class Killed(Exception):
    """The server is gone."""


@pytest.mark.parametrize("name", ["scaffold", "fedcorr", "rhfl", "local"])
def test_a_killed_server_resumes_bit_equal(name: str, tmp_path: Path):
    """By then the sites hold newer versions of their states."""
    simulated = toy.play(name).outcome.state
    write_toy_sites(tmp_path, *toy.settings(name))
    calls = itertools.count(1)
    kills = 0

    def exchange(requests, wait):
        answers = Desk(tmp_path)(requests, wait)
        if next(calls) in (2, 5, 11, 23):
            raise Killed
        return answers

    while True:
        try:
            outcome = run_on_sites(tmp_path / "server", exchange, dict(enumerate(world.SIZES)))
            break
        except Killed:
            kills += 1
    assert kills
    assert same_state(outcome.state.server, simulated.server)
    client_states = {c: simulated.store.copy_for(c) for c in simulated.store}
    assert same_state(collect_client_states(tmp_path, outcome.state), client_states)
    files = list(tmp_path.glob("site-3/states/0*"))
    assert len(files) < 4, "old versions are removed"


# what a site refuses, and what it keeps for itself


def test_the_server_does_not_know_the_noise_of_released_labels(tmp_path: Path):
    """If the noise came from the run's seed, the server could subtract it."""
    write_toy_sites(tmp_path, *toy.settings("feddpcont"))
    settings = RunSettings.load(tmp_path / "server")
    a, b = world.client_bounds(0)
    samples = world.arrays().x_train[a:b], world.toy_labels().noisy[a:b]
    where = {"kind": "call", "digest": settings.digest, "client": 0, "round": 0, "state": None, "oldest": None}
    epsilon, rounds = settings.make_method().plan_release(world.CLASSES)
    assert list(rounds) == [0]
    request = {
        **where,
        "function": describe_function(RELEASE, settings.make_train()),
        "broadcast": {"epsilon": epsilon},
    }
    answers = []
    for folder, seed in (("site-0", None), ("own", None), ("own", None), ("other", None), ("known", settings.seed)):
        if not (tmp_path / folder).exists():
            write_site(tmp_path / folder, settings, 0, *samples, world.arrays().x_public, release_seed=seed)
        answers.append(decode_message(answer_request(tmp_path / folder, encode_message(request)))["answer"]["counts"])
    rehearsed, released, repeated, fresh, seeded = (counts.tolist() for counts in answers)
    assert released == repeated, "a request that is repeated learns nothing more"
    assert rehearsed == seeded
    assert len({tuple(rehearsed), tuple(released), tuple(fresh)}) == 3


@pytest.mark.parametrize("release", ["once", "every_round"])
def test_labels_are_released_as_agreed_only(release: str, tmp_path: Path):
    """Another budget, another round or the exact histogram would tell more than run.json says."""
    fields, train = toy.settings("feddpcont")
    write_toy_sites(tmp_path, {**fields, "release": release}, train)
    method = RunSettings.load(tmp_path / "server").make_method()
    epsilon, rounds = method.plan_release(world.CLASSES)
    assert len(rounds) == (1 if release == "once" else train["rounds"])
    call = {"kind": "call", "function": describe_function(RELEASE, method.train)}
    for round in (-1, 0, 1, train["rounds"], train["rounds"] + 1):
        answer = ask_site(tmp_path, **call, round=round, broadcast={"epsilon": epsilon})
        assert (answer is None) == (round in rounds)
    problem = ask_site(tmp_path, **call, round=rounds[0], broadcast={"epsilon": 2 * epsilon})
    assert "in the rounds and with the budget of run.json only" in problem
    exact = describe_function(method._count_labels, method.train)
    assert "with dp none only" in ask_site(tmp_path, kind="call", function=exact, round=0)
    exact["local"]["fields"] |= {"dp": "none", "release": "once"}
    assert "has other settings than in run.json" in ask_site(tmp_path, kind="call", function=exact, round=0)


def test_an_error_of_a_sites_code_is_not_told_to_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args):
        raise ValueError("label 3 of patient Smith")

    monkeypatch.setattr("fednoise_core.flower.site.Sequential.run", fail)
    assert ask_site(tmp_path) == "ValueError at the site, whose log says more"


def ask_site(tmp_path: Path, **changed) -> str | None:
    """The problem that a site answers to a fit with these entries, of FedAvg unless there are folders."""
    if not (tmp_path / "server").exists():
        write_toy_sites(tmp_path, *toy.settings("fedavg"))
    digest = RunSettings.load(tmp_path / "server").digest
    base = {"kind": "fit", "digest": digest, "client": 0, "round": 1, "state": None, "oldest": None, "rate": None}
    request = {**base, "local": FEDAVG, "broadcast": {}, "fit": {"epochs": 1}, **changed}
    return decode_message(answer_request(tmp_path / "site-0", encode_message(request))).get("problem")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"digest": "0" * 16}, "other settings or other code"),
        ({"client": 1}, "a request for client 1, this is 0"),
        ({"kind": "delete"}, "'delete' is no kind of request"),
        ({"local": {"class": "os:system", "fields": {}}}, "os is no module of FedAvg"),
        ({"local": {"class": "fednoise_core.methods.scaffold:Scaffold", "fields": {}}}, "is no module of FedAvg"),
        ({"local": {"class": "fednoise_core.methods.fedavg:SpecError", "fields": {}}}, "is no part of FedAvg"),
        ({"state": "00000007-abc"}, "does not have version 00000007-abc"),
        ({"state": "../../site-1/site"}, "does not have version"),
        ({"kind": "call", "function": {"name": "fednoise_core.methods.fedavg:FedAvg"}}, "FedAvg is no function of"),
        ({"kind": "call", "function": {"name": "subprocess:run"}}, "subprocess is no module"),
        *(
            ({"kind": "call", "function": {"name": name, "local": FEDAVG}}, f"{name} is no function of FedAvg that")
            for name in ("suspect_labels", "predict_held_out")
        ),
        (
            {"kind": "call", "function": {"name": "fednoise_core.engine.federation:_randomise_labels"}},
            "engine.federation is no module of FedAvg",
        ),
        ({"fit": {"on": "train", "ids": torch.zeros(1).long()}}, "for public images only"),
        ({"fit": {"on": "train", "pool_targets": torch.zeros(2)}}, "for public images only"),
        ({"kind": "step", "step": 0, "fit": {"on": "train"}}, "for public images only"),
    ],
)
def test_a_site_refuses(changed, message: str, tmp_path: Path):
    assert message in ask_site(tmp_path, **changed)


def test_a_site_with_other_settings_has_another_digest(tmp_path: Path):
    fields, train = toy.settings("fedavg")
    for name, lr in (("one", 0.1), ("two", 0.2)):
        write_toy_sites(tmp_path / name, fields, {**train, "lr": lr})
    first, second = (RunSettings.load(tmp_path / name / "site-0") for name in ("one", "two"))
    assert first.digest == RunSettings.load(tmp_path / "one" / "server").digest != second.digest


@pytest.mark.parametrize(
    ("name", "message"), [("centralised", "all samples in one place"), ("mine:Own", "No module named")]
)
def test_methods_that_cannot_run_at_sites_are_refused_by_name(name: str, message: str, tmp_path: Path):
    with pytest.raises(SpecError, match=message):
        write_toy_sites(tmp_path, {"name": name}, {})


def test_cohorts_of_a_planned_generator_are_refused(tmp_path: Path):
    fields, train = toy.settings("fedavg")
    with pytest.raises(SpecError, match=r"train\.sampling: continued"):
        write_toy_sites(tmp_path, fields, {**train, "sampling": "continued"})


@pytest.mark.parametrize("names", [("a", "a"), ("a", "../b"), ("a", "b/c")])
def test_names_of_sites_are_names_of_folders(names: tuple[str, str], tmp_path: Path):
    arrays = world.arrays()
    partition = Partition(np.arange(4), np.array([0, 2, 4]), np.zeros(4, bool), {"notes": {"sites": names}})
    with pytest.raises(SpecError, match=r"settings\.sites"):
        write_folders(tmp_path, arrays, world.toy_labels().noisy, partition, *toy.settings("fedavg"), 0)


def make_settings(**changed) -> RunSettings:
    method, train = toy.settings("fedavg")
    data = {"classes": world.CLASSES, "mean": [0.25], "std": [0.2], "names": []}
    base = {"method": method, "train": train, "seed": 0, "sites": ("a", "b"), "copies": 1, "shape": (8, 8)}
    return RunSettings(**{**base, "data": data, **changed})


X, Y = world.arrays().x_test, world.arrays().y_test
FACTS = make_settings().data


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": {"name": "fedavgg"}}, "did you mean 'fedavg'?"),
        ({"method": {"name": "centralised"}}, "centralised needs all samples in one place"),
        ({"method": "fedavg"}, "settings.method: expected"),
        ({"train": {"round": 3}}, "train.round: unknown key; did you mean 'rounds'?"),
        ({"sites": ("a", "a")}, "settings.sites: expected names of different folders, got a, a"),
        ({"sites": "abc"}, 'settings.sites: expected list of texts, got "abc"'),
        ({"seed": "x"}, 'settings.seed: expected integer, got "x"'),
        ({"copies": 0}, "settings.copies: expected integer ≥ 1, got 0"),
        ({"shape": (16, 16)}, "images: expected the agreed shape (16, 16), got (8, 8)"),
        ({"data": {}}, "settings.data: expected classes, mean, std, names, got nothing"),
        ({"data": None}, "settings.data: expected"),
        ({"data": {**FACTS, "mean": [128]}}, "got [128] and [0.2]. Divide those of pixels 0..255 by 255"),
        ({"data": {**FACTS, "std": [60]}}, "got [0.25] and [60]. Divide those of pixels 0..255 by 255"),
        ({"data": {**FACTS, "mean": [0.25] * 3, "std": [0.2] * 3}}, "mean and std need 1 value(s) each"),
        ({"data": {**FACTS, "names": ["one", "two"]}}, "2 class names for 5 classes"),
        ({"train": {"net": "small_cn"}}, "did you mean 'small_cnn'?"),
        ({"train": {"augment": "flips"}}, "did you mean 'flip"),
        ({"method": {"name": "fedmd"}}, "public: fedmd needs public images, the same at"),
    ],
)
def test_settings_that_do_not_fit_are_not_written(changed, message: str, tmp_path: Path):
    settings = make_settings(**changed)
    with pytest.raises(SpecError, match=re.escape(message)):
        write_server(tmp_path, settings, X, Y)
    with pytest.raises(SpecError, match=re.escape(message)):
        write_site(tmp_path, settings, 0, X, Y)


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (X, Y[:-1], {}, "labels has shape (39,); (40,) is needed"),
        (X, Y + 1, {}, "labels holds 1..5; labels are 0..4; classes are counted from 0: subtract 1"),
        (None, None, {}, "images is object; images are integers 0..255"),
        (X, None, {}, "labels is object; integers are needed"),
        (X[:0], Y[:0], {}, "images has shape (0, 8, 8): it holds no pixel"),
        (X[:, :4], Y, {}, "images: expected the agreed shape (8, 8), got (4, 8)"),
        (np.stack([X] * 3, -1), Y, {}, "images: expected the agreed shape (8, 8), got (8, 8, 3)"),
        (X, Y, {"public": X[:, :4]}, "public has images (4, 8), images (8, 8)"),
    ],
)
def test_arrays_that_do_not_fit_are_not_written(images, labels, options, message: str, tmp_path: Path):
    with pytest.raises(SpecError, match=re.escape(message)):
        write_server(tmp_path, make_settings(), images, labels, **options)
    with pytest.raises(SpecError, match=re.escape(message)):
        write_site(tmp_path, make_settings(), 0, images, labels, **options)


@pytest.mark.parametrize(
    ("client", "options", "message"),
    [
        (2, {}, "client: expected the site's number, 0 (a), 1 (b), got 2"),
        (-1, {}, "client: expected the site's number, 0 (a), 1 (b), got -1"),
        ("a", {}, "client: expected the site's number, 0 (a), 1 (b), got 'a'"),
        (True, {}, "client: expected the site's number, 0 (a), 1 (b), got True"),
        (np.int64(1), {}, "client: expected the site's number, 0 (a), 1 (b), got np.int64(1)"),
        (0, {"first": Y[:-1]}, "first has shape (39,); (40,) is needed"),
        (0, {"valid": Y[:-1] > 2}, "valid: expected a value for each of 40 images, got 39"),
    ],
)
def test_wrong_arguments_of_a_site_are_not_written(client, options, message: str, tmp_path: Path):
    with pytest.raises(SpecError, match=re.escape(message)):
        write_site(tmp_path, make_settings(), client, X, Y, **options)


def test_a_site_has_its_own_rows_only(tmp_path: Path):
    write_toy_sites(tmp_path, *toy.settings("fedavg"))
    for client, size in enumerate(world.SIZES):
        a, b = world.client_bounds(client)
        site = tmp_path / f"site-{client}"
        assert site.stat().st_mode & 0o777 == 0o700
        with np.load(site / "site.npz") as content:
            assert set(content.keys()) == {"x", "labels", "valid", "public", "origin", "spec"}
            assert len(content["x"]) == size
            assert (content["x"] == world.arrays().x_train[a:b]).all()
    with np.load(tmp_path / "server" / "server.npz") as content:
        assert not len(content["x"])
        assert "labels" not in content


def test_bytes_are_those_that_the_simulation_counts_and_a_frame(tmp_path: Path):
    fields, train = toy.settings("scaffold", net={"name": "mlp", "hidden": 300}, fraction=1.0)
    write_toy_sites(tmp_path, fields, train)
    desk = Desk(tmp_path)
    fits = {"down": 0, "up": 0}

    def exchange(requests, wait):
        answers = desk(requests, wait)
        if decode_message(next(iter(requests.values())))["kind"] == "fit":
            fits["down"] += sum(map(len, requests.values()))
            fits["up"] += sum(map(len, answers.values()))
        return answers

    outcome = run_on_sites(tmp_path / "server", exchange, dict(enumerate(world.SIZES)))
    messages = train["rounds"] * len(outcome.fed.all)
    for name, counted in (("down", outcome.fed.bytes_down), ("up", outcome.fed.bytes_up)):
        frame = (fits[name] - counted) / messages
        assert 0 < frame < 1500, f"{frame} bytes {name} a message"


def test_the_code_of_the_page_finds_and_corrects_wrong_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (ROOT / "docs/real_federation.md").read_text(encoding="utf-8")
    at_server, at_site = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    arrays = fn.dataset("digits")
    noisy = fn.inject(arrays, {"kind": "symmetric", "rate": 0.3}, seed=0).noisy
    exec(at_server, {"test_images": arrays.x_test, "test_labels": arrays.y_test})
    sizes = dict.fromkeys(range(4), 290)
    for client in range(4):
        Path("site").mkdir()
        shutil.copy("federation/server/run.json", "site")
        rows = slice(290 * client, 290 * (client + 1))
        np.savez(f"mine{client}.npz", x_train=arrays.x_train[rows], given=noisy[rows])
        shutil.copy(f"mine{client}.npz", "mine.npz")
        exec(at_site.replace("2, mine", f"{client}, mine"), {})
        Path("site").rename(f"federation/site-{client}")
    outcome = run_on_sites(Path("federation/server"), Desk(Path("federation")), sizes)
    assert outcome.state.round == 8
    site, out = "federation/site-2", "mine2-2.npz"
    assert labels_page.main(["--site", site, "--out", "labels.html"]) == 0
    at_server, site_run = fn.load("federation/server"), fn.load(site)
    assert at_server.summary["accuracy"]["last"] > 0.8
    assert (at_server.predict(arrays.x_test).labels == site_run.predict(arrays.x_test).labels).all()
    assert "<title>" in Path("labels.html").read_text()
    assert apply_decisions.main(["--accept-all", f"{site}/suspects.csv", "--data", "mine2.npz", "--out", out]) == 0
    with np.load(out) as corrected:
        right = arrays.y_train[580:870]
        assert (corrected["first_given"] == noisy[580:870]).all()
        assert (corrected["given"] != right).sum() < 0.5 * (noisy[580:870] != right).sum()
