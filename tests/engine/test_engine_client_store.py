"""Clients' state is kept in memory or in a file, bit for bit, and safe beside a checkpoint."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from fednoise_core.engine.client_store import ClientStore, WireError
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.executors.workers import Workers
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.record import Record
from fednoise_core.engine.state import State, clear_checkpoint, kept_folder, load_checkpoint, save_checkpoint
from fednoise_core.io import ArtifactError
from fednoise_core.methods import make_method

CPU = torch.device("cpu")


def filed(path: Path | None = None, room: int = 0, **entries: Any) -> ClientStore:
    store = ClientStore(entries)
    store.move_to(path, room, CPU)
    return store


def everything(k: float = 1.0) -> dict[str, Any]:
    model = toy.toy_federation().init_weights("model")
    return {
        "model": model * k,
        "deep": {"half": torch.arange(5).to(torch.float16) * k, "counts": [torch.arange(3), 4]},
        "level": 0.1 * k,
        "name": "odd",
        "none": None,
    }


@pytest.mark.parametrize("named", [True, False])
def test_a_file_gives_back_what_was_put_in(named, tmp_path):
    store = filed(tmp_path / "some.kept" if named else None)
    for c in (7, 3):
        store[c] = everything(c)
    assert len(store._files) == len(store) == 2
    assert list(store) == [7, 3]
    assert all(toy.same_state(store[c], everything(c)) for c in (7, 3))
    assert store[7]["model"].layout is store[3]["model"].layout
    assert 5 not in store
    assert store.copy_for(5) == {}
    assert store.get(5) is None
    with pytest.raises(KeyError):
        store[5]
    del store[7]
    assert list(store) == [3]
    with pytest.raises(KeyError):
        del store[7]


def test_only_what_does_not_fit_goes_to_the_file():
    vector = torch.zeros(100)
    store = filed(room=1000)
    for c in range(4):
        store[c] = {"v": vector + c}
    assert len(store._files) == 2
    store[0] = {"v": vector[:50]}  # 600 bytes in memory now
    store[2] = {"v": vector + 20}
    assert len(store._files) == 1
    assert [float(store[c]["v"][0]) for c in range(4)] == [0, 1, 20, 3]
    assert store.largest == 400


def test_the_server_reads_no_entry_in_memory_or_in_a_file():
    store = filed()
    store[1] = everything()
    with store.server_side():
        for read in (lambda: store[1], lambda: store.get(1), lambda: list(store.values()), lambda: dict(store)):
            with pytest.raises(WireError, match="its own"):
                read()
        store[2] = everything(2)
        assert set(store) == {1, 2}
    assert toy.same_state(store[2], everything(2))


def values(state: State) -> list[float]:
    return [float(state.clients[c]["v"][0]) for c in sorted(state.clients)]


def state_of(tmp_path: Path, key: str = "key") -> tuple[State, Path]:
    path = tmp_path / "checkpoint.pt"
    state = State(clients={c: {"v": torch.full((3000,), float(c))} for c in range(5)})
    state.move_to(kept_folder(path, key), 0, CPU)
    return state, path


def test_a_checkpoints_files_outlive_what_came_after_it_also_after_a_resume(tmp_path):
    state, path = state_of(tmp_path)
    for k in range(1, 5):
        save_checkpoint(path, "key", state, Record().to_plain())
        assert len(list(kept_folder(path, "key").rglob("*.pt"))) == 5  # what older checkpoints named is gone
        saved = values(state)
        state, _ = load_checkpoint(path, "key", CPU)
        state.move_to(kept_folder(path, "key"), 0, CPU)
        for _ in range(3):
            for c in (0, 3):
                state.clients[c] = {"v": torch.full((3000,), 100.0 * k + c)}
        assert values(load_checkpoint(path, "key", CPU)[0]) == saved != values(state)
        assert len(state.clients._files) == 5


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_a_damaged_file_is_named_when_the_run_starts(damage, tmp_path):
    state, path = state_of(tmp_path)
    save_checkpoint(path, "key", state, Record().to_plain())
    file = kept_folder(path, "key") / "clients" / "3.pt"
    content = bytearray(file.read_bytes())
    content[6000] ^= 1
    file.write_bytes(content if damage == "flipped" else content[:9000])
    if damage == "gone":
        file.unlink()
    with pytest.raises(ArtifactError, match=r"checkpoint\.pt: damaged checkpoint .*3\.pt"):
        load_checkpoint(path, "key", CPU)


def test_a_run_of_other_settings_leaves_the_file_alone_until_its_own_checkpoint_is_in_place(tmp_path):
    state, path = state_of(tmp_path)
    save_checkpoint(path, "key", state, Record().to_plain())
    other_state, _ = state_of(tmp_path, "other")
    assert values(load_checkpoint(path, "key", CPU)[0]) == values(state)
    save_checkpoint(path, "other", other_state, Record().to_plain())
    assert [p.name for p in tmp_path.glob("*.kept")] == [kept_folder(path, "other").name]
    assert load_checkpoint(path, "key", CPU) is None
    clear_checkpoint(path)
    assert not list(tmp_path.iterdir())


def test_unused_entries_are_not_fetched_and_one_client_is_fetched_at_a_time(monkeypatch):
    """Otherwise a step for all clients would need room for all of their state."""
    fed = toy.toy_federation()
    state = State.of_clients((c, {"v": torch.full((300,), float(c))}) for c in fed.all)
    state.move_to(None, 0, CPU)
    in_memory = weakref.WeakSet()
    load = ClientStore._read_entry

    def watched(self, *args):
        entry = load(self, *args)
        in_memory.add(entry["v"])
        assert len(in_memory) <= 2  # one that is being put away and the next
        return entry

    monkeypatch.setattr(ClientStore, "_read_entry", watched)
    assert fed.run_on_clients(state, fed.all, lambda client, broadcast: client.id) == fed.all
    assert not in_memory
    assert len(state.clients._files) == len(fed.all)

    def raised(client: Any, broadcast: Any) -> float:
        client.state["v"] = client.state["v"] + 1
        return float(client.state["v"][0])

    assert fed.run_on_clients(state, fed.all, raised) == [c + 1.0 for c in fed.all]
    assert [float(state.clients[c]["v"][0]) for c in fed.all] == [c + 1.0 for c in fed.all]
    method = make_method({"name": "fedavg"}, fed.train)
    fed.fit(method, state, fed.all, {"model": fed.init_weights("model")})
    assert [float(state.clients[c]["v"][0]) for c in fed.all] == [c + 1.0 for c in fed.all]


def test_unchanged_entries_are_not_written_again(monkeypatch):
    fed = toy.toy_federation()
    state = State.of_clients((c, {"v": torch.full((3,), float(c)), "n": c}) for c in fed.all)
    state.move_to(None, 0, CPU)
    written = []
    put = ClientStore._write_file
    monkeypatch.setattr(
        ClientStore, "_write_file", lambda self, c, client_state: written.append(c) or put(self, c, client_state)
    )
    assert fed.run_on_clients(state, fed.all, lambda client, broadcast: client.state["n"]) == fed.all
    fed.fit(make_method({"name": "fedavg"}, fed.train), state, fed.all, {"model": fed.init_weights("model")})
    assert written == []

    def grow(client: Any, broadcast: Any) -> None:
        if client.id == 3:
            client.state["v"] = client.state["v"] + 1

    fed.run_on_clients(state, fed.all, grow)
    assert written == [3]
    assert state.clients[3]["v"].tolist() == [4.0] * 3


def test_a_run_that_goes_on_with_less_room_keeps_less_in_memory(tmp_path):
    path = tmp_path / "checkpoint.pt"
    state = State(clients={c: {"v": torch.full((250,), float(c))} for c in range(5)})
    save_checkpoint(path, "key", state, Record().to_plain())
    back, _ = load_checkpoint(path, "key", CPU)
    assert len(back.clients._files) == 0
    back.move_to(kept_folder(path, "key"), 2000, CPU)
    assert len(back.clients._files) == 3
    assert values(back) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("clear", ["replace", "empty"])
@pytest.mark.parametrize("count", [0, 2])
def test_the_state_of_a_client_can_be_cleared(clear, count):
    """Replaced by an empty state, or emptied in place; also where a worker runs the client."""
    world = toy.toy_world()
    fed = Federation(world, Workers(world, count) if count else Sequential(world))
    state = State.of_clients((c, {"v": torch.ones(3)}) for c in fed.all)
    fed.run_on_clients(state, [0, 3], replaced if clear == "replace" else emptied)
    fed.executor.close()
    assert {c: dict(state.clients[c]) for c in (0, 3)} == {0: {}, 3: {}}
    assert state.clients[4]["v"].tolist() == [1.0] * 3


def replaced(client: Any, broadcast: Any) -> None:
    client.state = {}


def emptied(client: Any, broadcast: Any) -> None:
    client.state.clear()
