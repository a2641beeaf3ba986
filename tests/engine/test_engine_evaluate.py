"""Evaluation: its rows, which checkpoints have too, and models that are not evaluated twice."""

import itertools

import pytest
import torch
import toy

from fednoise_core.engine.client_store import ClientStore
from fednoise_core.engine.evaluate import ClientEntry, Evaluator
from fednoise_core.engine.federation import SERVER
from fednoise_core.engine.loop import Saving, Stopped
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.state import load_checkpoint
from fednoise_core.engine.world import World


def held_out() -> tuple[Pool, torch.Tensor]:
    return Pool(toy.arrays().x_test, (0.25,), (0.2,)), torch.from_numpy(toy.arrays().y_test)


def test_a_stop_has_the_last_rounds_rows_in_its_checkpoint(tmp_path):
    asked = iter([False, False, True])
    saving = Saving(tmp_path / "checkpoint.pt", "key", seconds=1e9, stop=lambda: next(asked))
    with pytest.raises(Stopped):
        toy.play("feddpcont", rounds=5, saving=saving)
    _, log = load_checkpoint(saving.path, "key", torch.device("cpu"))
    assert {row[0] for row in log["metrics"] if row[3]} == {0, 1, 2, 3}
    resumed, full_run = (
        toy.play("feddpcont", rounds=5, saving=resume).outcome for resume in (Saving(saving.path, "key"), None)
    )
    assert resumed.resumed == 3
    assert toy.same_state(resumed.record, full_run.record)


def test_a_model_of_two_views_is_evaluated_once(monkeypatch):
    fed, seen = toy.toy_federation(), []
    evaluate = World.evaluate

    def watched(self, net, w, *args):
        seen.append(w.flat.data_ptr())
        return evaluate(self, net, w, *args)

    monkeypatch.setattr(World, "evaluate", watched)
    server, client_model = fed.init_weights("model"), fed.init_weights("model", 2)
    views = {"global": [(SERVER, server)], "sum": [(SERVER, [server, server])], "personal": [(3, ClientEntry("own"))]}
    rows = list(Evaluator(fed, *held_out()).evaluate_views(views, ClientStore({3: {"own": client_model}})))
    assert seen == [server.flat.data_ptr(), client_model.flat.data_ptr()]
    assert [row[:3] for row in rows if row[0] == "personal" and row[2] == "accuracy"] == [
        ("personal", 3, "accuracy"),
        ("personal", -1, "accuracy"),
    ]


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_a_model_that_a_client_did_not_change_is_not_evaluated_again(room, monkeypatch):
    count = []
    evaluate = World.evaluate

    def counted(self, net, w, pool, rows, *args):
        count.append(len(rows))
        return evaluate(self, net, w, pool, rows, *args)

    with monkeypatch.context() as patch:
        patch.setattr(World, "evaluate", counted)
        run = toy.play("local", room=room)
    held_out = [n for n in count if n == 40]
    # everyone before and after the pre-training, then each round's cohort, and everyone's confusion matrix at the end
    assert len(held_out) == 7 + 7 + 3 * 4 + 7
    never_the_same = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(ClientStore, "version", lambda self, client: next(never_the_same))
        always = toy.play("local", room=room)
    assert run.outcome.record.metrics == always.outcome.record.metrics
