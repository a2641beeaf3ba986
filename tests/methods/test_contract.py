"""What every method must keep. The suite that anybody can run (fednoise_core.testing) on all methods, and what only
methods of this package must: independence of chance and of how often is evaluated, golden numbers.
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
    whole, resumed = (toy.play(name, net=net, saving=saving, lr=0.05) for _ in range(2))
    assert resumed.outcome.resumed == 2
    assert toy.same_state(resumed.outcome.state, whole.outcome.state)
    assert all(torch.isfinite(w.flat).all() for _, several in whole.outcome.models() for w in several)


@every_method
def test_client_states_in_files_change_no_bit(name, played, tmp_path):
    """Nor does a resume then."""
    saving, whole = Saving(tmp_path / "checkpoint.pt", "key", rounds=2), played(name)
    for resumed in (0, 2):
        made = toy.play(name, out=tmp_path / "out", saving=saving, room=0)
        assert made.outcome.resumed == resumed
        kept = whole.run.outcome.state.clients.values()
        assert len(made.outcome.state.clients._files) == sum(count_bytes(mine) > 0 for mine in kept)
        assert toy.same_state(made.outcome.state, whole.run.outcome.state)
        for file in FILES:
            assert (tmp_path / "out" / file).read_bytes() == (whole.out / file).read_bytes(), file


@every_method
def test_another_seed_is_another_run(name, played):
    assert not toy.same_state(list(toy.play(name, seed=1).outcome.models()), list(played(name).run.outcome.models()))


@every_method
def test_evaluation_changes_nothing_else_and_cohorts_are_those_of_every_method(name, played, jobs, monkeypatch):
    """Where a method asks for the round's cohort, without conditions of its own, a fit trains just these clients."""
    asked: set[int] = set()
    sample = Federation.sample_cohort

    def noted(self, round, size=None, candidates=None):
        asked.update({round} if size is None and candidates is None else ())
        return sample(self, round, size, candidates)

    monkeypatch.setattr(Federation, "sample_cohort", noted)
    rare, whole = toy.play(name, eval_every=3), played(name).run
    assert toy.same_state(rare.outcome.state, whole.outcome.state)
    assert dict(rare.curve).items() < dict(whole.curve).items()
    if method_class(name).pooled:  # its only client is all clients
        return
    assert asked
    trained: dict[tuple[int, str], set[int]] = {}
    for one in (one for some in jobs for one in some if one.on == "train"):
        trained.setdefault((one.round, one.tag), set()).add(one.client)
    for round in asked:
        assert set(sample(toy.toy_federation(), round)) in [
            clients for (at, _), clients in trained.items() if at == round
        ]


def test_cohorts_differ_between_rounds():
    assert len({tuple(toy.toy_federation().sample_cohort(r)) for r in range(1, 6)}) == 5


# golden numbers


@every_method
def test_golden_numbers(name, played, request):
    found = json.loads(json.dumps(golden_numbers(played(name).run)))
    file = GOLDEN / f"{name}.json"
    if request.config.getoption("--golden"):
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(file.read_text(encoding="utf-8"))
    assert nearly_same(found, expected), (
        f"{name}: numbers moved; if that is wanted: python -m pytest tests/methods/test_contract.py --golden"
    )


def test_golden_files_are_those_of_the_methods():
    assert {p.stem for p in GOLDEN.glob("*.json")} == set(METHODS)
