"""The ServerApp and the ClientApp of Flower (flwr), which carry the messages. Nothing else imports flwr."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fednoise_core.flower.folders import RunSettings
from fednoise_core.flower.messages import MessageError, SiteError, decode_message, encode_message
from fednoise_core.flower.site import Site

POLL = 0.2  # seconds between two looks for answers
RECORD, ENTRY = "fednoise", "message"

client_app = ClientApp()
server_app = ServerApp()


@client_app.query()
def answer_message(message: Message, context: Context) -> Message:
    """Answer a request of the server, on the rows in the folder `site` of the node's configuration."""
    site = Site(Path(str(context.node_config["site"])))
    return Message(_pack_content(site.answer(_unpack_content(message))), reply_to=message)


@server_app.main()
def serve_run(grid: Grid, context: Context) -> None:
    """Run the federation whose settings are in the folder `folder` of the app's configuration."""
    from fednoise_core.flower.server import (
        run_on_sites,  # sites, whose process starts anew for each message, need it not
    )

    config = context.run_config
    folder = Path(str(config["folder"]))
    exchange = GridExchange(grid, RunSettings.load(folder), float(config["deadline"]), sys.stdout)
    run_on_sites(folder, exchange, exchange.wait_for_all(float(config["wait"])), sys.stdout)


class GridExchange:
    """Carries requests over a Grid of Flower. Each node says which site it is.

    Args:
        grid: Flower's Grid.
        settings: What server and sites agreed to.
        deadline: Seconds for the answers to a call.
        console: Gets a line for each node that is refused.
    """

    def __init__(self, grid: Grid, settings: RunSettings, deadline: float, console: TextIO):
        self._grid, self._settings, self._deadline, self._console = grid, settings, deadline, console
        self._nodes: dict[int, int] = {}  # client -> node
        self._sizes: dict[int, int] = {}
        self._refused: set[int] = set()
        self._silent: set[int] = set()  # nodes that left a request without an answer

    def wait_for_all(self, seconds: float) -> dict[int, int]:
        """Wait until every site is connected.

        Args:
            seconds: How long.

        Returns:
            Training samples by client.

        Raises:
            SiteError: A site is missing.
        """
        names = self._settings.sites
        self._wait_for(set(range(len(names))), seconds)
        if missing := [name for c, name in enumerate(names) if c not in self._nodes]:
            raise SiteError(f"sites {', '.join(missing)} did not connect in {seconds:g} s. Start their SuperNodes")
        return self._sizes

    def __call__(self, requests: Mapping[int, bytes], wait: bool) -> dict[int, bytes]:
        """Carry requests to their sites.

        Args:
            requests: By client.
            wait: Whether to wait for sites that are away.

        Returns:
            The answers that came before the deadline, by client.
        """
        self._wait_for(set(requests), self._deadline if wait else 0)
        clients = {self._nodes[c]: c for c in requests if c in self._nodes}
        answers = self._send({node: requests[c] for node, c in clients.items()})
        self._silent |= clients.keys() - answers.keys()
        self._silent -= answers.keys()
        return {clients[node]: answer for node, answer in answers.items()}

    def _wait_for(self, clients: set[int], seconds: float) -> None:
        end = time.monotonic() + seconds
        self._greet_nodes()
        while clients - self._nodes.keys() and time.monotonic() < end:
            time.sleep(POLL)
            self._greet_nodes()

    def _greet_nodes(self) -> None:
        """Ask nodes that are new which site they are, and forget those that are gone."""
        online = set(self._grid.get_node_ids())
        self._nodes = {c: node for c, node in self._nodes.items() if node in online}
        new = online - self._refused - set(self._nodes.values())
        hello = encode_message({"kind": "hello", "digest": self._settings.digest})
        for node, answer in self._send(dict.fromkeys(new, hello)).items():
            try:
                self._accept_node(node, decode_message(answer))
            except MessageError as error:
                self._refused.add(node)
                print(f"node {node} is refused: {error}", file=self._console, flush=True)

    def _accept_node(self, node: int, said: Mapping[str, object]) -> None:
        if "problem" in said:
            raise MessageError(str(said["problem"])[:2000])
        client, samples = said.get("client"), said.get("samples")
        if (
            not isinstance(client, int)
            or not isinstance(samples, int)
            or client not in range(len(self._settings.sites))
        ):
            raise MessageError("it does not say which site it is")
        if samples < 0 or self._sizes.setdefault(client, samples) != samples:
            raise MessageError(f"it has {samples} samples, but site {client} had another number")
        if client in self._nodes and self._nodes[client] not in self._silent:
            raise MessageError(f"site {client} is connected already")
        self._nodes[client] = node

    def _send(self, contents: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send to nodes, and collect their answers until the deadline."""
        end = time.monotonic() + self._deadline
        messages = [Message(_pack_content(one), node, "query", ttl=self._deadline) for node, one in contents.items()]
        pushed = zip(self._grid.push_messages(messages), contents, strict=False) if messages else ()
        waiting = {number: node for number, node in pushed if number is not None}
        found = {}
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_content():
                    found[node] = _unpack_content(reply)
            time.sleep(POLL if waiting else 0)
        return found


def _pack_content(content: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({ENTRY: content})})


def _unpack_content(message: Message) -> bytes:
    content = message.content.config_records[RECORD][ENTRY]
    assert isinstance(content, bytes)
    return content
