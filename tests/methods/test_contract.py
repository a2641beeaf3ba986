"""The contract of every method. The public suite (fednoise_core.testing) runs on all methods. Tests for methods of this
package only: dependence on the seed, independence of the evaluation interval, golden numbers.
"""

import json
from pathlib import Path

import pytest
import torch
import toy

from fednoise_core.engine.federation import Federation
from fednoise_core.engine.loop import Saving
from fednoise_core.methods import METHODS, make_method, method_class
from fednoise_core.ops.weights import count_bytes
from fednoise_core.testing.compare import golden_numbers, nearly_same
from fednoise_core.testing.test_contract import *  # noqa: F403
from fednoise_core.testing.test_contract import FILES

GOLDEN = Path(__file__).parent / "golden"

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_three_rounds_train_something(name, played):
    summary = played(name).run.summary
    fields, train = toy.settings(name)
    phases = make_method(fields, toy.toy_federation(train=train).train).list_phases(toy.toy_federation(train=train))
    assert summary["rounds"] == phases[-1].end == 3 + (phases[0].name == "pretrain")
    assert summary["accuracy"]["best"] > summary["accuracy"]["round0"]


@every_method
@pytest.mark.parametrize("net", ["toy_norm_drop", "toy_norm_point"])
def test_statistics_and_dropout_survive_a_resume(name, net, toy_nets, tmp_path):
    saving = Saving(tmp_path / "checkpoint.pt", "key", rounds=2)
    uninterrupted, resumed = (toy.play(name, net=net, saving=saving, lr=0.05) for _ in range(2))
    assert resumed.outcome.resumed == 2
    assert toy.same_state(resumed.outcome.state, uninterrupted.outcome.state)
    assert all(torch.isfinite(w.flat).all() for _, models in uninterrupted.outcome.models() for w in models)


@every_method
def test_client_states_in_files_change_no_bit(name, played, tmp_path):
    """A resume changes nothing either."""
    saving, reference = Saving(tmp_path / "checkpoint.pt", "key", rounds=2), played(name)
    for resumed in (0, 2):
        run = toy.play(name, out=tmp_path / "out", saving=saving, room=0)
        assert run.outcome.resumed == resumed
        states = reference.run.outcome.state.clients.values()
        assert len(run.outcome.state.clients._files) == sum(count_bytes(state) > 0 for state in states)
        assert toy.same_state(run.outcome.state, reference.run.outcome.state)
        for file in FILES:
            assert (tmp_path / "out" / file).read_bytes() == (reference.out / file).read_bytes(), file


@every_method
def test_another_seed_is_another_run(name, played):
    assert not toy.same_state(list(toy.play(name, seed=1).outcome.models()), list(played(name).run.outcome.models()))


@every_method
def test_evaluation_changes_nothing_else_and_cohorts_are_those_of_every_method(name, played, jobs, monkeypatch):
    """A fit trains exactly the round's cohort if the method asks for it without conditions."""
    rounds: set[int] = set()
    sample = Federation.sample_cohort

    def noted(self, round, size=None, candidates=None):
        rounds.update({round} if size is None and candidates is None else ())
        return sample(self, round, size, candidates)

    monkeypatch.setattr(Federation, "sample_cohort", noted)
    rare, base = toy.play(name, eval_every=3), played(name).run
    assert toy.same_state(rare.outcome.state, base.outcome.state)
    assert dict(rare.curve).items() < dict(base.curve).items()
    if method_class(name).pooled:  # its only client holds the samples of all clients
        return
    assert rounds
    trained: dict[tuple[int, str], set[int]] = {}
    for job in (job for call in jobs for job in call if job.on == "train"):
        trained.setdefault((job.round, job.tag), set()).add(job.client)
    for round in rounds:
        assert set(sample(toy.toy_federation(), round)) in [
            clients for (number, _), clients in trained.items() if number == round
        ]


def test_cohorts_differ_between_rounds():
    assert len({tuple(toy.toy_federation().sample_cohort(r)) for r in range(1, 6)}) == 5


# golden numbers


@every_method
def test_golden_numbers(name, played, request):
    numbers = json.loads(json.dumps(golden_numbers(played(name).run)))
    file = GOLDEN / f"{name}.json"
    if request.config.getoption("--golden"):
        file.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(file.read_text(encoding="utf-8"))
    assert nearly_same(numbers, expected), (
        f"{name}: numbers moved; if that is wanted: python -m pytest tests/methods/test_contract.py --golden"
    )


def test_golden_files_are_those_of_the_methods():
    assert {p.stem for p in GOLDEN.glob("*.json")} == set(METHODS)
