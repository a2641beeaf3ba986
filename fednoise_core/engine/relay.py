"""Messages that clients hand on to other clients through the server.

The engine holds it and counts it as traffic. The server never reads it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from fednoise_core.engine.client_store import ClientStore
from fednoise_core.ops.weights import count_bytes


@dataclass(frozen=True)
class Relayed:
    """Stands in a broadcast for what `client` handed on under `name`. The receiving client finds that itself."""

    client: int
    name: str


class Relay(ClientStore):
    """The latest message of each client to others.

    A message that comes up during a fit is staged: receivers in the same fit still get the one before, whichever client
    is done first. `deliver` ends that.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[int, dict[str, int]] = {}  # bytes by client and name
        self._staged: dict[int, dict[str, Any]] = {}

    def stage(self, client: int, message: dict[str, Any]) -> int:
        """Take a message in until `deliver`.

        Returns:
            Its bytes.
        """
        self._staged[client] = message
        return count_bytes(message)

    def deliver(self) -> None:
        """Put staged messages in the place of those before them.

        Call it when a fit is over.
        Until then receivers get the earlier message, whichever client is done first.
        """
        for client, message in self._staged.items():
            self[client] = message
            self._parts[client] = {name: count_bytes(value) for name, value in message.items()}
        self._staged = {}

    def has_message(self, client: int, name: str) -> bool:
        """Return True if the client has handed on something under this name."""
        return name in self._parts.get(client, ())

    def size(self, part: Relayed) -> int:
        """Count the bytes of the message part that `part` stands for."""
        return self._parts[part.client][part.name]

    def fetch_messages(self, parts: dict[str, Relayed]) -> dict[str, Any]:
        """Load what other clients handed on.

        Args:
            parts: Stand-ins by the name under which the receiving client finds the thing.

        Returns:
            The things themselves, under the same names.
        """
        return {key: self.copy_for(part.client)[part.name] for key, part in parts.items()}

    def to_plain(self) -> dict[str, Any]:
        """Describe the relay for a checkpoint.

        It is the answer of `ClientStore.to_plain`, with the bytes by name.
        """
        return {**super().to_plain(), "parts": {str(c): sizes for c, sizes in self._parts.items()}}

    @classmethod
    def from_plain(cls, plain: dict[str, Any], folder: Path, device: torch.device, layouts: dict[str, Any]) -> Self:
        """Undo `to_plain`. Arguments and errors are those of `ClientStore.from_plain`."""
        relay = super().from_plain(plain, folder, device, layouts)
        relay._parts = {int(c): sizes for c, sizes in plain["parts"].items()}
        return relay
