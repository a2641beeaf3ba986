"""The ServerApp and the ClientApp of Flower (flwr), which transport the messages. No other module imports flwr."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fednoise_core.api.cost import describe_versions
from fednoise_core.flower.folders import RunSettings
from fednoise_core.flower.messages import HUGE, MessageError, SiteError, decode_message, encode_message
from fednoise_core.flower.site import answer_request

POLL = 0.2  # seconds between two checks for answers
RECORD, ENTRY = "fednoise", "message"

client_app = ClientApp()
server_app = ServerApp()


@client_app.query()
def answer_message(message: Message, context: Context) -> Message:
    """Answer a request of the server. The site's folder is `site` in the node's configuration."""
    answer = answer_request(Path(str(context.node_config["site"])), _unpack_content(message) or b"")
    return Message(_pack_content(answer), reply_to=message)


@server_app.main()
def serve_run(grid: Grid, context: Context) -> None:
    """Run the federation. The server's folder is `folder` in the app's configuration."""
    from fednoise_core.flower.server import (
        run_on_sites,  # imported here, because sites do not need it and start a new process for each message
    )

    config = context.run_config
    folder = Path(str(config["folder"]))
    settings, strict = RunSettings.load(folder), bool(config.get("strict", False))
    site_nodes = read_nodes(str(config.get("nodes", "")), settings.sites)
    exchange = GridExchange(grid, settings, float(config["deadline"]), sys.stdout, strict=strict, site_nodes=site_nodes)
    run_on_sites(folder, exchange, exchange.wait_for_all(float(config["wait"])), sys.stdout)


def read_nodes(text: str, sites: Sequence[str]) -> tuple[int, ...]:
    """Read the node of each site.

    Args:
        text: Numbers of nodes in the order of the sites, such as "17 4 99". With "", any node may be any site.
        sites: Names of the sites.

    Raises:
        SiteError: There is not exactly one number per site.
    """
    words = text.replace(",", " ").split()
    if words and not (all(map(str.isdecimal, words)) and len(set(words)) == len(words) == len(sites)):
        raise SiteError(f"pyproject.toml: nodes: expected a number for each of {', '.join(sites)}, got {text!r}")
    return tuple(map(int, words))


class GridExchange:
    """Sends requests over a Grid of Flower. Each node reports which site it is.

    Args:
        grid: Flower's Grid.
        settings: Settings that server and sites agreed on.
        deadline: Seconds for the answers to a call.
        console: Stream for a line about each node that is refused, or whose versions differ from the server's.
        strict: Whether to refuse nodes with other versions of Python, torch, numpy or this package.
        site_nodes: Node of each site, which Flower assigns to a registered key. If it is empty, any node may be any
            site.
    """

    def __init__(
        self,
        grid: Grid,
        settings: RunSettings,
        deadline: float,
        console: TextIO,
        *,
        strict: bool = False,
        site_nodes: Sequence[int] = (),
    ):
        self._grid, self._settings, self._deadline, self._console = grid, settings, deadline, console
        self._strict, self._site_nodes = strict, site_nodes
        self._nodes: dict[int, int] = {}  # client -> node
        self._sizes: dict[int, int] = {}
        self._refused: set[int] = set()
        self._silent: set[int] = set()  # nodes that did not answer a request
        self._greeted: dict[int, tuple[str, float]] = {}  # node -> (id of the greeting, time of its deadline)

    def wait_for_all(self, seconds: float) -> dict[int, int]:
        """Wait until every site is connected.

        Args:
            seconds: Largest number of seconds to wait.

        Returns:
            Number of training samples by client.

        Raises:
            SiteError: A site is missing.
        """
        names = self._settings.sites
        self._wait_for(set(range(len(names))), seconds)
        if missing := [name for c, name in enumerate(names) if c not in self._nodes]:
            raise SiteError(f"sites {', '.join(missing)} did not connect in {seconds:g} s. Start their SuperNodes")
        return self._sizes

    def __call__(self, requests: Mapping[int, bytes], wait: bool) -> dict[int, bytes]:
        """Send requests to their sites.

        Args:
            requests: Requests by client.
            wait: Whether to wait for sites that are not connected.

        Returns:
            The answers that arrive before the deadline, by client.
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
        """Ask new nodes which site they are, read answers that have arrived, and remove disconnected nodes.

        It does not wait for answers, because a node without an answer must not delay a round.
        """
        online, now = set(self._grid.get_node_ids()), time.monotonic()
        self._nodes = {c: node for c, node in self._nodes.items() if node in online}
        self._refused &= online  # a node that reconnects is asked again, as its problem may be solved
        self._greeted = {node: greeting for node, greeting in self._greeted.items() if greeting[1] > now}
        new = sorted(online - self._greeted.keys() - self._refused - set(self._nodes.values()))
        hello = encode_message({"kind": "hello", "digest": self._settings.digest})
        pushed = self._push(dict.fromkeys(new, hello))
        self._greeted |= {node: (number, now + self._deadline) for number, node in pushed.items()}
        for node, answer in self._pull({number: node for node, (number, _) in self._greeted.items()}).items():
            del self._greeted[node]
            if answer is None:  # it is asked again
                print(f"node {node} failed to say which site it is: see its log", file=self._console, flush=True)
                continue
            try:
                self._accept_node(node, decode_message(answer))
            except MessageError as error:
                self._refused.add(node)
                print(f"node {node} is refused: {error}", file=self._console, flush=True)

    def _accept_node(self, node: int, greeting: Mapping[str, object]) -> None:
        if "problem" in greeting:
            raise MessageError(str(greeting["problem"])[:2000])
        client, samples = greeting.get("client"), greeting.get("samples")
        if not (isinstance(client, int) and isinstance(samples, int) and 0 <= client < len(self._settings.sites)):
            raise MessageError("it does not say which site it is")
        if not 0 <= samples <= HUGE or self._sizes.setdefault(client, samples) != samples:
            raise MessageError(f"it has {samples} samples, but site {client} had another number")
        if self._site_nodes and self._site_nodes[client] != node:
            raise MessageError(f"it says that it is {self._settings.sites[client]}, whose key is another")
        difference = _describe_difference(greeting.get("versions"))
        if difference and self._strict:
            raise MessageError(f"it has {difference}")
        if self._nodes.get(client) in {None, *self._silent}:
            self._nodes[client] = node
            if difference:
                site = self._settings.sites[client]
                print(f"site {site} has {difference}: last digits may differ", file=self._console, flush=True)
        # otherwise the site may have been restarted; it is asked again until its former node is gone

    def _send(self, contents: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send to nodes, and collect their answers until the deadline."""
        end, waiting = time.monotonic() + self._deadline, self._push(contents)
        answers: dict[int, bytes | None] = {}
        while len(answers) < len(waiting) and time.monotonic() < end:
            answers |= self._pull({number: node for number, node in waiting.items() if node not in answers})
            time.sleep(POLL)
        return {node: answer for node, answer in answers.items() if answer is not None}

    def _push(self, contents: Mapping[int, bytes]) -> dict[str, int]:
        """Send to nodes. Returns the node of each message."""
        messages = [
            Message(_pack_content(content), node, "query", ttl=self._deadline) for node, content in contents.items()
        ]
        numbers = self._grid.push_messages(messages) if messages else []
        return {number: node for number, node in zip(numbers, contents, strict=False) if number is not None}

    def _pull(self, waiting: Mapping[str, int]) -> dict[int, bytes | None]:
        """Return the answers that have arrived. None: Flower could not deliver the message, or the app failed."""
        replies = self._grid.pull_messages(list(waiting)) if waiting else []
        return {waiting[reply.metadata.reply_to_message_id]: _unpack_content(reply) for reply in replies}


def _describe_difference(versions: object) -> str:
    """List the versions in which a site differs from the server. The text is "" if all are equal."""
    site = versions if isinstance(versions, Mapping) else {}
    pairs = [(name, str(site.get(name))[:40], own) for name, own in describe_versions().items()]
    return ", ".join(f"{name} {theirs} (server: {own})" for name, theirs, own in pairs if theirs != own)


def _pack_content(content: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({ENTRY: content})})


def _unpack_content(message: Message) -> bytes | None:
    """Unpack the content of a message. None: the message is an error, or has no such content."""
    records = message.content.config_records if message.has_content() else {}
    content = records[RECORD].get(ENTRY) if RECORD in records else None
    return content if isinstance(content, bytes) else None
