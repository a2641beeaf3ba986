"""Messages from clients to other clients, which the server passes on.

The engine stores them and counts them as traffic. Server code never reads them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from fednoise_core.engine.client_store import ClientStore
from fednoise_core.ops.weights import count_bytes


@dataclass(frozen=True)
class Relayed:
    """Placeholder in a broadcast for the value `name` in a message of `client`. The receiver gets the value itself."""

    client: int
    name: str


class Relay(ClientStore):
    """The latest message of each client to other clients.

    A message that is sent during a fit is staged until `deliver`. Receivers in the same fit still get the previous
    message, whichever client finishes first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[int, dict[str, int]] = {}  # bytes by client and name
        self._staged: dict[int, dict[str, Any]] = {}

    def stage(self, client: int, message: dict[str, Any]) -> int:
        """Stage a message until `deliver`.

        Returns:
            Size of the message in bytes.
        """
        self._staged[client] = message
        return count_bytes(message)

    def deliver(self) -> None:
        """Replace the previous messages by the staged messages. Call it at the end of a fit."""
        for client, message in self._staged.items():
            self[client] = message
            self._parts[client] = {name: count_bytes(value) for name, value in message.items()}
        self._staged = {}

    def has_message(self, client: int, name: str) -> bool:
        """Return True if the client's latest message has a value of this name."""
        return name in self._parts.get(client, ())

    def size(self, part: Relayed) -> int:
        """Return the size in bytes of the value that the placeholder `part` stands for."""
        return self._parts[part.client][part.name]

    def fetch_messages(self, parts: dict[str, Relayed]) -> dict[str, Any]:
        """Load values from messages of other clients.

        Args:
            parts: Placeholders, by the name of the value in the receiving client's broadcast.

        Returns:
            The values under the same names.
        """
        return {key: self.copy_for(part.client)[part.name] for key, part in parts.items()}

    def to_plain(self) -> dict[str, Any]:
        """Describe the relay for a checkpoint.

        It is the result of `ClientStore.to_plain`, and the size of each value.
        """
        return {**super().to_plain(), "parts": {str(c): sizes for c, sizes in self._parts.items()}}

    @classmethod
    def from_plain(cls, plain: dict[str, Any], folder: Path, device: torch.device, layouts: dict[str, Any]) -> Self:
        """Restore a relay from `to_plain`. Arguments and errors are those of `ClientStore.from_plain`."""
        relay = super().from_plain(plain, folder, device, layouts)
        relay._parts = {int(c): sizes for c, sizes in plain["parts"].items()}
        return relay
