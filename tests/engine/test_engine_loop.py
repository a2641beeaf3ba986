"""Phases, evaluation, checkpoints and progress of the one loop."""

import io
import json
import types
import zipfile
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import toy

from fednoise_core.engine import loop as loop_module
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.loop import Saving
from fednoise_core.engine.phase import Phase
from fednoise_core.engine.record import Progress, Record
from fednoise_core.engine.state import State, load_checkpoint, save_checkpoint
from fednoise_core.io import ArtifactError
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.train import Train


@dataclass(frozen=True, kw_only=True)
class Phased(FedAvg):
    """Records the calls of the loop. plan: (name, end, until) of each phase."""

    plan: tuple[Any, ...] = ()
    calls: list[str] = field(default_factory=list)

    def list_phases(self, fed: Federation) -> list[Phase]:
        return [Phase(name, self._round(name), end, until, self._enter(name)) for name, end, until in self.plan]

    def _round(self, name):
        def go(fed, state):
            self.calls.append(f"{name}{state.round}")
            fed.passes += 576
            fed.bytes_up += 100
            return {"made": state.round / 2}

        return go

    def _enter(self, name):
        def go(fed, state):
            self.calls.append(f"enter {name} after {state.round}")
            fed.bytes_down += 5
            state.notes[name] = state.round

        return go


def phased(*plan, **train) -> Phased:
    return Phased(train=Train(**{**toy.TRAIN, **train}), plan=plan)


def test_phases_follow_each_other_and_are_entered_once():
    method = phased(("a", 2, None), ("b", 3, None), ("c", 5, None))
    outcome = toy.run_method(method)
    assert method.calls == ["enter a after 0", "a1", "a2", "enter b after 2", "b3", "enter c after 3", "c4", "c5"]
    assert outcome.state.notes == {"a": 0, "b": 2, "c": 3}
    assert outcome.state.round == 5
    assert outcome.spent == [0, 0]  # there was no earlier attempt
    assert [row[2] for row in outcome.record.metrics if row[5] == "made"] == ["a", "a", "b", "c", "c"]


def test_a_phase_ends_when_its_condition_holds_after_at_least_one_round():
    method = phased(("a", 9, lambda state: state.round >= 2), ("b", 9, lambda state: True), ("c", 5, None))
    toy.run_method(method)
    assert [c for c in method.calls if not c.startswith("enter")] == ["a1", "a2", "b3", "c4", "c5"]


@pytest.mark.parametrize("interval", [1, 4])
def test_phases_are_recorded_for_figures_to_mark(interval):
    """Also of rounds that are not evaluated; not of a phase that had none, nor of the start."""
    plan = (("a", 9, lambda state: state.round >= 2), ("b", 2, None), ("c", 3, None), ("d", 6, None))
    record = toy.run_method(phased(*plan, eval_every=interval)).record
    assert record.phases() == [
        {"name": "a", "first": 1, "last": 2},
        {"name": "c", "first": 3, "last": 3},
        {"name": "d", "first": 4, "last": 6},
    ]
    assert Record().phases() == []


def test_every_round_reports_work_and_traffic_of_all_since_the_last():
    outcome = toy.run_method(phased(("a", 2, None), ("b", 3, None)))
    by = {(row[0], row[5]): row for row in outcome.record.metrics if row[3] == ""}
    # a round of FedAvg is 4 clients times 2 epochs times 72/7 samples = 576/7 passes: 576 passes are 7 of them
    assert [by[r, "bytes_up"][1] for r in range(4)] == pytest.approx([0.0, 7.0, 14.0, 21.0], rel=1e-12)
    assert [by[r, "bytes_up"][6] for r in range(4)] == [0, 100, 100, 100]
    assert [by[r, "bytes_down"][6] for r in range(4)] == [0, 5, 0, 5]  # entering a phase counts to its first round
    assert [by[r, "made"][6] for r in (1, 2, 3)] == [0.5, 1.0, 1.5]


@pytest.mark.parametrize(("interval", "seen"), [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4, 5]), (10, [0, 5])])
def test_evaluation_is_due_every_so_many_rounds_and_at_the_end(interval, seen):
    outcome = toy.run_method(phased(("a", 5, None), eval_every=interval))
    assert [r for r, _ in outcome.record.curve("global")] == seen


def test_the_last_rounds_are_all_evaluated_if_so_many_are_asked_for():
    outcome = toy.run_method(phased(("a", 5, None), ("b", 9, None), eval_every=4, eval_last=3))
    assert [r for r, _ in outcome.record.curve("global")] == [0, 4, 7, 8, 9]


@pytest.mark.filterwarnings("ignore:train.precision")  # where the processor has no bf16
def test_evaluation_in_bf16_changes_predictions_a_little_and_no_training():
    exact, rounded = (toy.play("fedavg", eval_precision=precision).outcome for precision in ("fp32", "bf16"))
    (exact_model,), (rounded_model,) = (
        [models[0].flat for _, models in outcome.models()] for outcome in (exact, rounded)
    )
    assert torch.equal(exact_model, rounded_model)
    losses = [[row[6] for row in outcome.record.metrics if row[5] == "loss"] for outcome in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_the_last_round_is_evaluated_also_if_phases_without_rounds_follow():
    outcome = toy.run_method(phased(("a", 3, None), ("b", 3, None), eval_every=10))
    assert [r for r, _ in outcome.record.curve("global")] == [0, 3]


# checkpoints


def test_work_is_exact_after_a_resume():
    """29 passes over 7 a round: the quotient does not lead back to 29."""
    assert (29 / 7) * 7 != 29
    record = Record(passes=29, work=29 / 7)
    assert Record.from_plain(record.to_plain()).passes == 29
    assert Record.from_plain(json.loads(json.dumps(record.to_plain()))) == record


def checkpoint(tmp_path, **state):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, "key", State(**state), Record().to_plain())
    return path


def test_state_comes_back_whole(tmp_path):
    fed = toy.toy_federation()
    model = fed.init_weights("model")
    state = State(
        server={"model": model, "lid": torch.arange(3.0).double()},
        clients={3: {"own": model * 2.0}, 5: {}},
        notes={"level": [0.5, None], "deep": {"a": True}},
        round=7,
        phase=2,
        since=4,
        entered=True,
        relabelled={1: torch.tensor([4])},
    )
    path = tmp_path / "c.pt"
    save_checkpoint(path, "key", state, {"work": 1.5})
    back, log = load_checkpoint(path, "key", torch.device("cpu"))
    assert toy.same_state(back, state)
    assert log == {"work": 1.5}
    assert back.server["model"].layout is back.clients[3]["own"].layout
    assert not list(tmp_path.glob("*.tmp"))


def test_another_key_is_ignored_and_no_file_is_no_checkpoint(tmp_path):
    path = checkpoint(tmp_path, round=3)
    assert load_checkpoint(path, "other", torch.device("cpu")) is None
    assert load_checkpoint(tmp_path / "none.pt", "key", torch.device("cpu")) is None
    assert load_checkpoint(path, "key", torch.device("cpu"))[0].round == 3
    outcome = toy.run_method(phased(("a", 2, None)), saving=Saving(path, "new settings"))
    assert outcome.resumed == 0


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = checkpoint(tmp_path, server={"w": torch.arange(4096.0)})
    for content in (b"", b"not a checkpoint"):
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"checkpoint\.pt: damaged"):
            load_checkpoint(path, "key", torch.device("cpu"))
    code = {"key": "key", "state": print}
    for incomplete in ({"key": "key"}, {"key": "key", "log": {}, "state": {"round": 1}}, [1], code):
        torch.save(incomplete, path)
        with pytest.raises(ArtifactError, match=r"checkpoint\.pt: damaged"):
            load_checkpoint(path, "key", torch.device("cpu"))


def test_checkpoints_are_written_when_due_and_not_after_the_last_round(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(
        "fednoise_core.engine.loop.save_checkpoint", lambda path, key, state, log: saved.append(state.round)
    )
    toy.run_method(phased(("a", 7, None)), saving=Saving(tmp_path / "c.pt", "key", seconds=1e9, rounds=3))
    assert saved == [3, 6]
    saved.clear()
    toy.run_method(phased(("a", 3, None)), saving=Saving(tmp_path / "c.pt", "key", seconds=0.0))
    assert saved == [1, 2]
    saved.clear()
    toy.run_method(phased(("a", 3, None)), saving=Saving(tmp_path / "c.pt", "key", seconds=1e9))
    assert saved == []


# progress


def test_one_line_a_round_on_the_console_and_as_json(tmp_path):
    console, path = io.StringIO(), tmp_path / "work" / "progress.jsonl"
    method = phased(("warm", 1, None), ("rest", 3, None), eval_every=3)
    toy.run_method(method, label="mine/seed4", console=console, progress=path)
    lines = console.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("mine/seed4  warm  round 1/3")
    assert "global" in lines[2]
    assert "0 s left" in lines[2]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(r["round"], r["of"], r["phase"]) for r in rows] == [(1, 3, "warm"), (2, 3, "rest"), (3, 3, "rest")]
    assert set(rows[2]["accuracy"]) == {"global"}
    assert rows[0]["accuracy"] == {}


def test_time_left_counts_the_rounds_of_this_process_only(monkeypatch, tmp_path):
    clock = iter([100.0, 104.0, 108.0])
    monkeypatch.setattr("fednoise_core.engine.record.time.monotonic", lambda: next(clock))
    progress = Progress("run", 20, 10, tmp_path / "p.jsonl", None)  # went on from round 10
    progress.report_round(11, "a", {}, Record())
    progress.report_round(12, "a", {}, Record())
    progress.close()
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    assert [json.loads(line)["left"] for line in lines] == [36.0, 32.0]


def test_writing_checkpoints_takes_a_twentieth_of_the_time_at_most(tmp_path, monkeypatch):
    clock, writes = [0.0], []
    monkeypatch.setattr(
        loop_module, "time", types.SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: clock[0])
    )
    account = loop_module.RunLoop._record_report

    def ticking(*args):  # a round takes ten seconds
        clock[0] += 10
        account(*args)

    def slow(*args):
        clock[0] += 10
        writes.append(clock[0])

    monkeypatch.setattr(loop_module.RunLoop, "_record_report", ticking)
    monkeypatch.setattr(loop_module, "save_checkpoint", slow)
    toy.play("fedavg", rounds=50, saving=Saving(tmp_path / "c.pt", "k", seconds=20.0))
    assert len(writes) == 3  # after 20 seconds, then every 190
    assert writes[2] - writes[1] == 200


# damage


def flip(path):
    with zipfile.ZipFile(path) as archive:
        numbers = max(archive.infolist(), key=lambda info: info.file_size)
    data = bytearray(path.read_bytes())
    data[numbers.header_offset + numbers.file_size // 2] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_run_with_a_damaged_checkpoint_starts_over_and_ends_the_same(damage, tmp_path, capsys):
    method, path, asked = FedAvg(train=Train(**{**toy.TRAIN, "rounds": 4})), tmp_path / "c.pt", iter([False, True])
    full_run = toy.run_method(method)
    with pytest.raises(loop_module.Stopped):
        toy.run_method(method, saving=Saving(path, "key", stop=lambda: next(asked)))
    assert toy.run_method(method, saving=Saving(path, "key")).resumed == 2
    damage(path)
    again = toy.run_method(method, saving=Saving(path, "key"), label="study/x/seed0")
    assert again.resumed == 0
    assert toy.same_state(again.state, full_run.state)
    assert toy.same_state(again.record, full_run.record)
    assert f"study/x/seed0  {path}: damaged checkpoint (" in capsys.readouterr().err


def test_a_damaged_file_of_kept_things_is_a_damaged_checkpoint(tmp_path):
    path = tmp_path / "c.pt"
    asked = iter([False, True])
    full_run = toy.play("scaffold", room=0)
    with pytest.raises(loop_module.Stopped):
        toy.play("scaffold", room=0, saving=Saving(path, "key", stop=lambda: next(asked)))
    next(tmp_path.glob("*.kept/clients/*.pt")).write_bytes(b"")
    again = toy.play("scaffold", room=0, saving=Saving(path, "key"))
    assert again.outcome.resumed == 0
    assert toy.same_state(again.outcome.state, full_run.outcome.state)
