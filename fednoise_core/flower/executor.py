"""The executor of a real federation. Fits and client-side functions run at the sites, server fits in this process."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TextIO

import torch
from torch import Tensor

from fednoise_core.engine.client import Client
from fednoise_core.engine.client_store import MappingSource, load_mapping
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.fit import FitRequest, FitResult
from fednoise_core.engine.loop import name_clients
from fednoise_core.engine.state import State
from fednoise_core.engine.world import SERVER, World
from fednoise_core.flower.messages import (
    HUGE,
    INITIAL,
    MessageError,
    SiteError,
    decode_message,
    describe_function,
    describe_local,
    encode_message,
    iterate_weights,
)
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops.weights import Layout, Weights, all_finite, iterate_leaves

# (requests by client, whether to wait for sites that are not connected) -> answers that arrive before the deadline
Exchange = Callable[[Mapping[int, bytes], bool], Mapping[int, bytes]]

FIT = ("epochs", "on", "ids", "pool_targets", "tag", "batch", "net_of", "together", "single_ok")  # sent unchanged
ATTEMPTS = 3  # number of attempts for requests that a round needs
LIMIT = 64 << 20  # an answer may have so many bytes more than twice its request
PARTS = ("update", "relay", "message", "answer")  # entries of an answer that the server's code reads
VERSION = "version"  # key of the name of the site's version, which the server stores as client state


class Sites(Sequential):
    """Sends requests to the sites.

    The server's State holds the version of each client state, never the client state itself.

    Args:
        world: The server's world.
        method: The method, which determines the names that may be sent.
        digest: Digest of settings and code.
        exchange: Function that sends the requests of one call, and returns the answers that arrive before its deadline.
        console: Stream for a line about each site that is left out of a fit.
    """

    name = "sites"

    def __init__(
        self, world: World, method: FedAvg, digest: str, exchange: Exchange, console: TextIO | None = None
    ) -> None:
        super().__init__(world)
        self._method, self._digest, self._exchange = method, digest, exchange
        self._console = console or sys.stderr
        self._layouts = {net.layout for net in world.nets}
        self._oldest: dict[int, tuple[int, str | None]] = {}  # client -> round, version at its first request in it
        self.missed: list[int] = []  # clients left out of fits

    # fits

    def run(self, requests: Sequence[FitRequest]) -> Iterator[FitResult]:
        """Run these fits.

        If a site does not answer, or its answer is refused, its result is marked as not finite, and the federation
        drops it.

        Yields:
            Results in the order of the requests.
        """
        remote = {
            request.client: self._describe_fit("fit", request) for request in requests if request.client != SERVER
        }
        answers = self._drop_odd(self._ask(remote, wait=False))
        for request in requests:
            if request.client == SERVER:
                yield from super().run([request])
            else:
                yield self.read_fit(request.client, answers.get(request.client))

    def _describe_fit(self, kind: str, request: FitRequest) -> dict[str, Any]:
        train, rate = self._method.train, request.rate
        fit = {name: getattr(request, name) for name in FIT}
        if request.ids is not None and torch.equal(request.ids, torch.arange(self.world.pool(request.on).n)):
            fit["ids"] = None  # no list is needed for the whole pool
        return {
            **self._describe_request(kind, request.client, request.round, load_mapping(request.client_state)),
            "local": describe_local(request.local, train),
            "broadcast": load_mapping(request.broadcast),
            "rate": describe_function(rate, train) if callable(rate) else rate,
            "fit": fit,
        }

    def _describe_request(self, kind: str, client: int, round: int, client_state: Mapping[str, Any]) -> dict[str, Any]:
        version = client_state.get(VERSION, INITIAL if client_state else None)
        if self._oldest.get(client, (-1, None))[0] != round:
            self._oldest[client] = round, version  # no checkpoint refers to an older version
        where = {"kind": kind, "digest": self._digest, "client": client, "round": round}
        return {**where, "state": version, "oldest": self._oldest[client][1]}

    def read_fit(self, client: int, reply: Mapping[str, Any] | None) -> FitResult:
        """Check and read the answer to a fit.

        Args:
            client: The client.
            reply: The answer, which is not trusted. None: there is no answer.

        Returns:
            The result. It is marked as not finite if the answer is missing or not valid.
        """
        try:
            if reply is not None:
                return self._make_result(reply)
        except MessageError as error:
            self._print_problem(client, str(error))
        self.missed.append(client)
        return FitResult({}, None, None, 0, finite=False)

    def _make_result(self, reply: Mapping[str, Any]) -> FitResult:
        update, relay = reply.get("update"), reply.get("relay")
        if not isinstance(update, dict) or not isinstance(relay, dict) or not isinstance(reply.get("finite"), bool):
            raise MessageError("the answer to a fit has no update")
        self._check_names(update, "update")
        self._check_names(relay, "relay")
        steps, passes, twice = (_read_count(reply, name) for name in ("steps", "passes", "twice"))
        return FitResult(update, _read_version(reply), None, steps, passes, relay, reply["finite"], twice)

    def _check_names(self, sent: Mapping[str, Any], side: str) -> None:
        patterns = [name.removesuffix("?") for name in self._method.wire.get(side, ())]
        for name in sent:
            if not any(fnmatchcase(str(name), pattern) for pattern in patterns):
                raise MessageError(f"{name!r} is no {side} of {type(self._method).__name__}")

    # functions, and fits in lockstep

    def call(
        self, fn: Callable[[Client, Any], Any], clients: Sequence[Client], broadcasts: Sequence[MappingSource]
    ) -> Iterator[tuple[Any, Client]]:
        """Call fn(client, broadcast) at the site of each client.

        Arguments and results are those of `Sequential.call`.

        Raises:
            SiteError: A site does not answer, or its answer is refused. The method needs all answers.
        """
        described = describe_function(fn, self._method.train)
        requests = {
            me.id: {
                **self._describe_request("call", me.id, me.round, load_mapping(me.kept)),
                "function": described,
                "broadcast": load_mapping(broadcast),
            }
            for me, broadcast in zip(clients, broadcasts, strict=True)
        }
        answers = self.ask_all(requests)
        for me in clients:
            if (version := _read_version(answers[me.id])) is not None:
                me.state = version
            yield answers[me.id].get("answer"), me

    def together(self, requests: Sequence[FitRequest]) -> SitesTogether:  # type: ignore[override]
        """Open these fits at once, for `Federation.fit_lockstep`."""
        described = {request.client: {**self._describe_fit("step", request), "step": 0} for request in requests}
        return SitesTogether(self, described)

    def judge_labels(self, state: State, judges: Mapping[int, Any], broadcast: Mapping[str, Any]) -> list[int]:
        """Have sites write their own lists of suspect labels.

        Args:
            state: The run's state.
            judges: For each client, the members of the view whose models are used, with the client's own models by
                name.
            broadcast: Argument of `suspect_labels`.

        Returns:
            Clients that did not answer.
        """
        requests = {}
        for c, members in judges.items():
            request = self._describe_request("judge", c, state.round, state.store.copy_for(c))
            requests[c] = {**request, "judges": members, "broadcast": broadcast}
        return sorted(requests.keys() - self._ask_again(requests).keys())

    # requests

    def ask_all(self, requests: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """Send a request to every client, and repeat it for clients that do not answer.

        Args:
            requests: Requests by client.

        Returns:
            The answers by client.

        Raises:
            SiteError: A client does not answer, or its answer is refused.
        """
        answers = self._ask_again(requests)
        if missing := requests.keys() - answers.keys():
            silent = name_clients(list(missing))
            raise SiteError(f"the round needs the answers of {silent}. Mend what is said above, and run it again")
        return answers

    def _ask_again(self, requests: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        answers: dict[int, dict[str, Any]] = {}
        for _ in range(ATTEMPTS):
            left = {c: request for c, request in requests.items() if c not in answers}
            answers = self._drop_odd(answers | self._ask(left, wait=True))
            if len(answers) == len(requests):
                break
        return answers

    def _ask(self, requests: Mapping[int, Mapping[str, Any]], wait: bool) -> dict[int, dict[str, Any]]:
        """Send requests and return the valid answers."""
        content = {client: encode_message(request) for client, request in requests.items()}
        answers, accepted = self._exchange(content, wait) if content else {}, {}
        for client in requests:
            try:
                layouts = self._layouts | {weights.layout for weights in iterate_weights(requests[client])}
                reply = _read_answer(answers.get(client), len(content[client]), layouts)
                if not self._method.answers_nan and not all_finite(reply.get("answer")):
                    raise MessageError("a number is not finite")
                accepted[client] = reply
            except MessageError as error:
                self._print_problem(client, str(error))
        return accepted

    def _drop_odd(self, answers: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Keep answers with the most frequent names and shapes, if these are in more than half of the answers."""
        shapes = {
            c: " ".join(self._describe_shapes(c, reply.get(part)) for part in PARTS) for c, reply in answers.items()
        }
        common, count = Counter(shapes.values()).most_common(1)[0] if shapes else ("", 0)
        for client, shape in shapes.items():
            if shape != common or 2 * count <= len(shapes):
                self._print_problem(client, f"its answer has the shapes {shape}, those of others {common}")
        return {c: reply for c, reply in answers.items() if shapes[c] == common and 2 * count > len(shapes)}

    def _describe_shapes(self, client: int, tree: Any) -> str:
        """Describe names, types and shapes. Weights of the client's own net have the same description for all nets."""
        if isinstance(tree, Mapping):
            parts = [f"{name}: {self._describe_shapes(client, tree[name])}" for name in sorted(tree, key=str)]
            return f"{{{', '.join(parts)}}}"
        if isinstance(tree, list):
            return f"[{', '.join(self._describe_shapes(client, item) for item in tree)}]"
        if isinstance(tree, Weights):
            is_net = tree.layout == self.world.net(client).layout
            return f"weights {tree.flat.dtype}{'' if is_net else list(tree.flat.shape)}"
        if isinstance(tree, Tensor):
            return f"{tree.dtype}{list(tree.shape)}"
        return "number" if isinstance(tree, int | float) else type(tree).__name__

    def _print_problem(self, client: int, problem: str) -> None:
        print(f"client {client}: {problem[:2000]}", file=self._console, flush=True)


class SitesTogether:
    """Lockstep fits at several sites; see `executors.sequential.Together`."""

    def __init__(self, executor: Sites, requests: Mapping[int, Mapping[str, Any]]):
        self._executor, self._requests = executor, requests
        self._answers = executor.ask_all(requests)
        self.steps = [_read_count(self._answers[c], "steps") for c in requests]

    def collect_messages(self, k: int) -> list[dict[str, Any]]:
        """Collect the message of each client before step k."""
        return [self._answers[c]["message"] for c in self._requests]

    def take_step(self, k: int, replies: Sequence[Mapping[str, Any]]) -> None:
        """Take step k of each client.

        Args:
            k: The step.
            replies: Further entries of `broadcast` for this step, one mapping per client.
        """
        fields = ("kind", "digest", "client", "round", "state", "oldest")
        requests = {}
        for (client, first), reply in zip(self._requests.items(), replies, strict=True):
            same = {name: first[name] for name in fields}
            requests[client] = {**same, "step": k + 1, "reply": reply}
        self._answers = self._executor.ask_all(requests)

    def close(self) -> list[FitResult]:
        """Return the results, in the order of the requests."""
        return [self._executor.read_fit(c, self._answers[c]) for c in self._requests]


def _read_answer(answer: bytes | None, sent: int, layouts: Collection[Layout]) -> dict[str, Any]:
    if answer is None:
        raise MessageError("no answer before the deadline")
    if len(answer) > 2 * sent + LIMIT:
        raise MessageError(f"an answer of {len(answer)} bytes is too large")
    reply = decode_message(answer, layouts)
    if "problem" in reply:
        raise MessageError(str(reply["problem"]))
    if not isinstance(reply.get("state"), str | None):
        raise MessageError("the answer names no version of its client state")
    if any(_is_huge(leaf) for leaf in iterate_leaves([reply.get(part) for part in PARTS])):
        raise MessageError(f"a number is beyond {HUGE:g}")
    return reply


def _read_count(reply: Mapping[str, Any], name: str) -> int:
    count = reply.get(name)
    if type(count) is not int or not 0 <= count <= HUGE:
        raise MessageError(f"the answer has no count of {name}")
    return count


def _read_version(reply: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the version that the server stores as client state. None: it is unchanged."""
    return None if reply.get("state") is None else {VERSION: reply["state"]}


def _is_huge(leaf: Any) -> bool:
    """Return True if a leaf has a finite number beyond HUGE.

    Numbers that are not finite are dropped by the federation.
    """
    if not isinstance(leaf, Tensor):
        return isinstance(leaf, int | float) and HUGE < abs(leaf) < float("inf")
    sizes = leaf.double().abs()
    return bool((torch.isfinite(sizes) & (sizes > HUGE)).any())
