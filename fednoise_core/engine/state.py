"""State of a run that is stored in checkpoints, and functions that write and read checkpoints."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fednoise_core.engine.client_store import ClientStore
from fednoise_core.engine.relay import Relay
from fednoise_core.io import ArtifactError, json_digest, open_atomic
from fednoise_core.ops.weights import from_plain, to_plain


@dataclass
class State:
    """The server's and the clients' state between rounds.

    Attributes:
        server: Values that the server stores ("model", "control", "prior" …).
        clients: Client state of each client. The engine fills it from `make_update` and `run_on_clients`.
        notes: Small JSON values, such as estimated noise levels and counters.
        round: Current round, from 1. 0: before the first round.
        phase: Number of the current phase, from 0.
        since: Round after which the current phase was entered.
        entered: Whether the current phase was entered.
    """

    server: dict[str, Any] = field(default_factory=dict)
    clients: MutableMapping[int, dict[str, Any]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    round: int = 0
    phase: int = 0
    since: int = 0
    entered: bool = False
    # for the engine only: client -> its targets if changed, and messages between clients
    relabelled: dict[int, Tensor] = field(default_factory=dict, repr=False)
    relay: Relay = field(default_factory=Relay, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.clients, ClientStore):
            self.clients = ClientStore(self.clients)

    @classmethod
    def of_clients(cls, states: Iterable[tuple[int, dict[str, Any]]]) -> State:
        """Make a state with initial client states.

        Args:
            states: Pairs of a client and its state. They are consumed one by one, so that states can be written to
                files before memory is full.
        """
        return cls(clients=ClientStore(states))

    def move_to(self, folder: Path | None, room: int | None = None, device: torch.device | None = None) -> None:
        """Set where client states and messages between clients are stored.

        The arguments are those of `ClientStore.move_to`.
        Each of the two gets a folder of its own in `folder`.
        """
        self.store.move_to(folder and folder / "clients", room, device)
        self.relay.move_to(folder and folder / "relay", room, device)

    @property
    def store(self) -> ClientStore:
        """The client states, as the ClientStore that the engine uses."""
        assert isinstance(self.clients, ClientStore)  # ensured by __post_init__
        return self.clients


def kept_folder(checkpoint: Path, key: str) -> Path:
    """Name the folder beside a checkpoint for client states that are not in memory.

    The name contains the key. So a run with other settings does not touch the folder until it has written its own
    checkpoint.

    Args:
        checkpoint: Path of the checkpoint.
        key: Digest of settings, code and inputs.
    """
    return checkpoint.with_name(f"{checkpoint.stem}-{json_digest(key)}.kept")


def clear_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint and the folders of client states beside it.

    Args:
        checkpoint: Path of the checkpoint, which may be missing.
    """
    checkpoint.unlink(missing_ok=True)
    for left in checkpoint.parent.glob(f"{checkpoint.stem}-*.kept"):
        shutil.rmtree(left, ignore_errors=True)


def save_checkpoint(path: Path, key: str, state: State, log: dict[str, Any]) -> None:
    """Write state and log, whole or not at all.

    The file holds plain dicts of tensors and values, so that torch's safe loading takes it.

    Args:
        path: The checkpoint.
        key: Digest of settings, code and inputs.
        state: The run's state. Files of client states are moved beside the checkpoint.
        log: Plain values to store with it.
    """
    folder = kept_folder(path, key)
    state.move_to(folder)
    plain = {
        "key": key,
        "log": log,
        "state": {
            "server": to_plain(state.server),
            "clients": state.store.to_plain(),
            "notes": to_plain(state.notes),
            "round": state.round,
            "phase": state.phase,
            "since": state.since,
            "entered": state.entered,
            "relabelled": {str(c): to_plain(v) for c, v in state.relabelled.items()},
            "relay": state.relay.to_plain(),
        },
    }
    with open_atomic(path, "wb") as file:
        try:
            torch.save(plain, file)
        except RuntimeError as error:  # torch wraps the OSError of a full disk
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
    state.store.commit()
    state.relay.commit()
    for outdated in path.parent.glob(f"{path.stem}-*.kept"):  # folders of checkpoints that this one has replaced
        if outdated != folder:
            shutil.rmtree(outdated, ignore_errors=True)


def load_checkpoint(path: Path, key: str, device: torch.device) -> tuple[State, dict[str, Any]] | None:
    """Load state and log.

    Returns:
        (state, log), or None if there is no checkpoint or it belongs to other settings, code or inputs.

    Raises:
        ArtifactError: The file cannot be read. It was written whole, so something else damaged it.
    """
    if not os.path.exists(path):
        return None
    layouts: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not notice changed numbers
            if (changed := archive.testzip()) is not None:
                raise ValueError(f"checksum of {changed}")
        plain = torch.load(path, map_location="cpu", weights_only=True)
        if plain["key"] != key:
            return None
        stored, folder = plain["state"], kept_folder(path, key)
        state = State(
            server=from_plain(stored["server"], device, layouts),
            clients=ClientStore.from_plain(stored["clients"], folder / "clients", device, layouts),
            notes=from_plain(stored["notes"], device, layouts),
            round=stored["round"],
            phase=stored["phase"],
            since=stored["since"],
            entered=stored["entered"],
            relabelled={int(c): from_plain(v, device) for c, v in stored["relabelled"].items()},
            relay=Relay.from_plain(stored["relay"], folder / "relay", device, layouts),
        )
        return state, plain["log"]
    except (MemoryError, torch.OutOfMemoryError):
        raise  # not caused by the file
    except Exception as error:  # torch and zipfile raise many kinds
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | IsADirectoryError):
            raise  # caused by the disk or its permissions
        reason = (str(error).splitlines() or [""])[0]
        raise ArtifactError(f"{path}: damaged checkpoint ({type(error).__name__}: {reason})") from error
