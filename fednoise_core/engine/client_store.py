"""Store client states in memory up to a limit, and beyond the limit in files. Server code cannot read them."""

import io
import os
import shutil
import tempfile
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch

from fednoise_core.io import ArtifactError
from fednoise_core.ops.weights import count_bytes, from_plain, to_plain

ROOM = 1 << 30  # default limit in bytes of client states in memory

# a client state or a broadcast, or a function that loads it when the client runs
MappingSource = Mapping[str, Any] | Callable[[], dict[str, Any]]


class WireError(RuntimeError):
    """Code accessed or changed data that belong to a client or to other clients."""


def load_mapping(source: MappingSource) -> dict[str, Any]:
    """Load the mapping of a source as a new dict. The values are not copied.

    A source is a mapping, or a function that loads one.
    """
    return source() if callable(source) else dict(source)


class ClientStore(MutableMapping[int, dict[str, Any]]):
    """Map each client to its client state.

    The map is write-only while server code of a method runs. Reading then raises WireError.
    A client state that would exceed `room` bytes in memory is written to its own file, and is read from there with
    equal bits. A file that the last checkpoint names is not changed until the next checkpoint is written (`commit`).
    """

    def __init__(self, states: Mapping[int, dict[str, Any]] | Iterable[tuple[int, dict[str, Any]]] = ()):
        self._memory: dict[int, dict[str, Any]] = {}
        self._files: dict[int, tuple[Path, int]] = {}  # file, CRC-32
        self._sizes: dict[int, int] = {}  # bytes of each client state, in memory or in a file
        self._used = 0  # bytes in memory
        self._versions: Counter[int] = Counter()
        self._room, self._device = ROOM, torch.device("cpu")
        self._folder: Path | None = None
        self._saved: set[Path] = set()  # files that the last checkpoint names
        self._layouts: dict[str, Any] = {}
        self._shut = False
        for client, client_state in states.items() if isinstance(states, Mapping) else states:
            self[client] = client_state

    def move_to(self, folder: Path | None, room: int | None = None, device: torch.device | None = None) -> None:
        """Set where client states are stored, and move the states that are elsewhere.

        Args:
            folder: Folder for the files, to which checkpoints then refer. None keeps the current folder, which is a
                temporary folder at first.
            room: Bytes that may stay in memory. None keeps the current limit.
            device: Device of tensors that are read from a file. None keeps the current device.
        """
        self._room = self._room if room is None else room
        self._device = device or self._device
        before, self._folder = self._folder, folder or self._folder
        for client, size in self._sizes.items():
            if self._folder != before or client in self._memory:  # the new limit may be lower
                self._store_entry(client, self._read_entry(client), size)

    @contextmanager
    def server_side(self) -> Iterator[None]:
        """Forbid reading while server code runs.

        The engine calls each server-side function of a method in `with state.store.server_side():`. Reading inside
        raises WireError. Writing is allowed.
        """
        self._shut = True
        try:
            yield
        finally:
            self._shut = False

    def __setitem__(self, client: int, client_state: dict[str, Any]) -> None:
        self._store_entry(client, client_state, count_bytes(client_state))
        self._versions[client] += 1

    def _store_entry(self, client: int, client_state: dict[str, Any], size: int) -> None:
        freed = self._sizes[client] if client in self._memory else 0
        fits = self._used - freed + size <= self._room
        file = None if fits else self._write_file(client, client_state)
        self._drop_entry(client)
        if file is None:
            self._memory[client] = client_state
            self._used += size
        else:
            self._files[client] = file
        self._sizes[client] = size

    def _write_file(self, client: int, client_state: dict[str, Any]) -> tuple[Path, int]:
        buffer = io.BytesIO()
        torch.save(to_plain(client_state), buffer)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="fednoise-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{client}.pt"
        if path in self._saved:
            path = path.with_stem(f"{client}-other")
        try:
            path.write_bytes(buffer.getbuffer())
        except OSError as error:  # the error of a full disk does not name the file
            error.filename = str(path)
            raise
        return path, zlib.crc32(buffer.getbuffer())

    def __getitem__(self, client: int) -> dict[str, Any]:
        if self._shut:
            raise WireError(
                "what a client keeps is its own: use `client.state` in client code, and `ClientEntry` in list_models"
            )
        return self._read_entry(client)

    def _read_entry(self, client: int) -> dict[str, Any]:
        if client not in self._files:
            return self._memory[client]
        plain = torch.load(io.BytesIO(_read_verified(*self._files[client])), weights_only=True)
        return from_plain(plain, self._device, self._layouts)

    def copy_for(self, client: int) -> dict[str, Any]:
        """Copy the mapping of one client for that client's own code. It is {} if the client has none.

        The engine may call this at any time, even while server code runs.
        The copy shares its tensors with the store.
        """
        return dict(self._read_entry(client)) if client in self else {}

    def _drop_entry(self, client: int) -> None:
        if client in self._memory:
            del self._memory[client]
            self._used -= self._sizes[client]
        self._files.pop(client, None)

    def __delitem__(self, client: int) -> None:
        self._drop_entry(client)
        del self._sizes[client]

    def __contains__(self, client: object) -> bool:
        return client in self._sizes

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def version(self, client: int) -> int:
        """Return how often the client's state was stored so far.

        Equal numbers mean unchanged content, so a result that was computed from the content is still valid.
        """
        return self._versions[client]

    @property
    def largest(self) -> int:
        """Bytes of the largest client state."""
        return max(self._sizes.values(), default=0)

    def to_plain(self) -> dict[str, Any]:
        """Describe the store for a checkpoint, in dicts, numbers and tensors.

        Client states in memory are included in the result. Other states are included by file name, and these files are
        flushed to disk before the function returns.
        """
        for path, _ in self._files.values():
            if path not in self._saved:
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        return {
            "sizes": {str(c): size for c, size in self._sizes.items()},
            "memory": {str(c): to_plain(v) for c, v in self._memory.items()},
            "files": {str(c): [path.name, check] for c, (path, check) in self._files.items()},
        }

    def commit(self) -> None:
        """Remove the files that only the previous checkpoint names.

        Call it after the checkpoint with the result of `to_plain` is written. Until then the files are needed, because
        the previous checkpoint is used if the process is killed.
        """
        self._saved = {path for path, _ in self._files.values()}
        if self._folder is not None and self._folder.is_dir():
            for path in set(self._folder.iterdir()) - self._saved:
                path.unlink()

    @classmethod
    def from_plain(cls, plain: dict[str, Any], folder: Path, device: torch.device, layouts: dict[str, Any]) -> Self:
        """Restore a store from `to_plain`.

        Args:
            plain: The result of `to_plain`.
            folder: Folder of the files that `plain` names.
            device: Device for the tensors.
            layouts: Known layouts of weights. Equal layouts become one object, and new layouts are added.

        Raises:
            OSError: A file is missing.
            ArtifactError: A file is damaged.
        """
        store = cls()
        store._folder, store._device, store._layouts = folder, device, layouts
        store._sizes = {int(c): size for c, size in plain["sizes"].items()}
        store._memory = {int(c): from_plain(v, device, layouts) for c, v in plain["memory"].items()}
        store._used = sum(store._sizes[c] for c in store._memory)
        store._files = {int(c): (folder / name, check) for c, (name, check) in plain["files"].items()}
        store._saved = {path for path, _ in store._files.values()}
        for path, check in store._files.values():  # report damage now, not when the client runs
            _read_verified(path, check)
        return store


def _read_verified(path: Path, check: int) -> bytes:
    """Read a file. Raise ArtifactError if its checksum is wrong."""
    content = path.read_bytes()
    if zlib.crc32(content) != check:
        raise ArtifactError(f"{path}: damaged; delete it and its checkpoint to start from round 0")
    return content
