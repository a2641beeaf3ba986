"""A site: one client of a real federation. Its folder has its own rows and its client state."""

from __future__ import annotations

import copy
import hashlib
import math
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednoise_core.api.cost import describe_versions
from fednoise_core.engine.client import Client, call_on
from fednoise_core.engine.evaluate import ClientEntry, EvaluatedModels, valid_accuracy
from fednoise_core.engine.executors.sequential import Sequential, Together
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.fit import FitRequest, FitResult
from fednoise_core.engine.loop import Outcome
from fednoise_core.engine.models import describe_data, write_models
from fednoise_core.engine.record import Record
from fednoise_core.engine.state import State
from fednoise_core.engine.suspects import judge_held_out, judge_sites
from fednoise_core.engine.world import torch_switches
from fednoise_core.flower.folders import SITE_DATA, RunSettings, load_data, make_world
from fednoise_core.flower.messages import (
    INITIAL,
    RELEASE,
    MessageError,
    decode_message,
    encode_message,
    restore_function,
    restore_local,
)
from fednoise_core.io import ArtifactError, SpecError, open_atomic
from fednoise_core.label_errors.files import write_sites, write_suspects
from fednoise_core.ops.weights import Weights, all_finite


def answer_request(folder: Path, content: bytes) -> bytes:
    """Answer a request of the server.

    Args:
        folder: The folder of the site.
        content: The request, which is not trusted.

    Returns:
        The answer. It has an entry "problem" if the request was refused or the method's code failed.
    """
    try:
        with torch_switches(1):
            return encode_message(Site(folder).answer(content))
    except Exception as error:  # whatever the method's code raises, the server waits for an answer
        traceback.print_exc()
        ours = isinstance(error, MessageError | ArtifactError | SpecError)  # other errors may contain the site's data
        problem = str(error) if ours else f"{type(error).__name__} at the site, whose log says more"
        return encode_message({"problem": problem})


class Site:
    """Answers the server's requests on the rows of one site.

    Each version of the client state is a file in the folder `states`. A request names the version to start from. The
    answer names the new version, if there is one. So a lost answer or a resumed server does no harm.

    Args:
        folder: Folder with run.json and site.npz.

    Raises:
        ArtifactError: One of these files is missing or damaged.
        SpecError: A setting is wrong.
    """

    def __init__(self, folder: Path):
        self.folder, self.settings = folder, RunSettings.load(folder)
        self.method = self.settings.make_method()
        self.images, self._held, spec = load_data(folder, self.settings, SITE_DATA)
        self.client: int = spec["client"]
        self.world = make_world(self.settings, self.images, self._held, self.client)
        self._release_world = copy.copy(self.world)  # draws the noise of released labels
        self._release_world.seed = spec["release_seed"]
        self._runner = Sequential(self.world)

    def answer(self, content: bytes) -> dict[str, Any]:
        """Answer a request.

        Args:
            content: The request, which is not trusted.

        Raises:
            MessageError: The request is refused.
        """
        request, digest = decode_message(content), hashlib.sha256(content).hexdigest()[:16]
        if request.get("digest") != self.settings.digest:
            raise MessageError("the server has other settings or other code: compare run.json and the versions")
        kind = request.get("kind")
        if kind == "hello":
            versions = describe_versions()
            return {"client": self.client, "samples": self.world.sizes[self.client], "versions": versions}
        answers = {"fit": self._fit, "call": self._call, "step": self._step, "judge": self._judge}
        if kind not in answers:
            raise MessageError(f"{kind!r} is no kind of request")
        if request["client"] != self.client:
            raise MessageError(f"a request for client {request['client']}, this is {self.client}")
        reply = answers[kind](request, digest)
        self._remove_states(request["oldest"])
        return reply

    # requests

    def _fit(self, request: Mapping[str, Any], digest: str) -> dict[str, Any]:
        return self._keep_result(request, digest, next(self._runner.run([self._make_request(request)])))

    def _make_request(self, request: Mapping[str, Any]) -> FitRequest:
        client_state, targets = self.load_state(request["state"])
        rate, fit = request["rate"], request["fit"]
        chosen = request["kind"] == "step" or any(fit.get(name) is not None for name in ("ids", "pool_targets"))
        if chosen and fit.get("on") != "public":
            raise MessageError("samples, targets and steps are chosen by a server for public images only")
        return FitRequest(
            local=restore_local(request["local"], self.method),
            client=self.client,
            round=request["round"],
            broadcast=request["broadcast"],
            client_state=client_state,
            targets=targets,
            rate=restore_function(rate, self.method) if isinstance(rate, dict) else rate,
            **fit,
        )

    def _keep_result(self, request: Mapping[str, Any], digest: str, result: FitResult) -> dict[str, Any]:
        models = [value for value in (result.client_state or {}).values() if isinstance(value, Weights)]
        finite = result.finite and all_finite(models)
        version = self._keep_state(request["state"], digest, result.client_state, result.targets) if finite else None
        sent = {name: getattr(result, name) for name in ("update", "relay", "steps", "passes", "twice")}
        return {**sent, "finite": finite, "state": version}

    def _call(self, request: Mapping[str, Any], digest: str) -> dict[str, Any]:
        client_state, targets = self.load_state(request["state"])
        fn = restore_function(request["function"], self.method)
        world = self._release_world if fn is RELEASE else self.world
        if fn is RELEASE:
            epsilon, rounds = self.method.plan_release(self.world.classes)  # type: ignore[attr-defined]
            if request["round"] not in rounds or request["broadcast"].get("epsilon") != epsilon:
                raise MessageError("labels are released in the rounds and with the budget of run.json only")
        client = Client(world, self.client, client_state, targets, request["round"])
        answer = call_on(client, fn, request["broadcast"])
        kept = client.release_state(fn.__qualname__)
        version = self._keep_state(request["state"], digest, kept, client.targets if client.changed else None)
        return {"answer": answer, "state": version}

    def _step(self, request: Mapping[str, Any], digest: str) -> dict[str, Any]:
        """Take one step of a lockstep fit, in which clients exchange messages before each step.

        The process may end between two steps. So the first request and the weights in training are stored in a file.
        """
        k, saved = request["step"], {}
        if k:
            saved = decode_message(self._step_file(k - 1).read_bytes())
            if (saved["step"], saved["first"]["round"]) != (k - 1, request["round"]):
                raise MessageError(f"step {k} does not follow step {saved['step']}: the fit has to begin again")
        first = saved["first"] if k else request
        together = Together(self.world, [self._make_request(first)])
        fit = together.fits[0]
        if k:
            for name, (values, memory) in saved["carry"].items():
                fit.carry[name].load(values, memory)
            fit.state.update(saved["state"])
            together.collect_messages(k - 1)  # makes the step's batch
            together.take_step(k - 1, [request["reply"]])
        if k == together.steps[0]:
            return {"steps": k, **self._keep_result(first, digest, together.close()[0])}
        carry = {name: [trained.values(), trained.copy_memory()] for name, trained in fit.carry.items()}
        self._write(self._step_file(k), {"step": k, "first": dict(first), "carry": carry, "state": fit.state})
        return {"steps": together.steps[0], "message": together.collect_messages(k)[0]}

    def _judge(self, request: Mapping[str, Any], digest: str) -> dict[str, Any]:
        """Estimate the site's label errors, and write its results. They are not sent."""
        client_state, targets = self.load_state(request["state"])
        judges: list[Any] = [(c, [_restore_member(member) for member in models]) for c, models in request["judges"]]
        views: EvaluatedModels = {"headline": judges}
        client = Client(self.world, self.client, client_state, targets, request["round"])
        fed = Federation(self.world, self._runner)
        held_out = call_on(client, self.method.predict_held_out, request["broadcast"])
        if held_out is not None:
            judged = judge_held_out(fed, {self.client: held_out})
        else:
            answer = call_on(client, self.method.suspect_labels, request["broadcast"])
            judged = judge_sites(fed, views, {self.client: client_state}, {self.client: answer})
        state = State(clients={self.client: client_state})
        self._write_results(Outcome(fed, state, Record(), views, judged, None, 0, []))
        return {}

    def _write_results(self, outcome: Outcome) -> None:
        """Write the site's lists of labels, its model, and the model's agreement with held-out given labels."""
        arrays, names, (view, members) = self.images.as_arrays(), self.settings.sites, *outcome.views.items()
        write_suspects(self.folder / "suspects.csv", outcome.suspects, arrays, self.images.y_train, names)
        write_sites(self.folder / "sites.csv", outcome.suspects, names)
        write_models(self.folder / "model.safetensors", outcome, describe_data(arrays))
        agreement = valid_accuracy(outcome.fed, members, outcome.state.clients)
        last = agreement if agreement is not None and math.isfinite(agreement) else None
        self.settings.write_summary(self.folder, {"headline_view": view, "accuracy": {"last": last}}, test_known=False)

    # the client state

    def load_state(self, version: str | None) -> tuple[dict[str, Any], Any]:
        """Load a version of the client state.

        Args:
            version: Name of the version, from an earlier answer. None: there is no client state yet.

        Returns:
            The client state, and the client's targets, or None if they are the given labels.

        Raises:
            MessageError: The site does not have this version.
        """
        if version is None:
            return {}, None
        if version == INITIAL:
            state = self.method.init_state(Federation(self.world, self._runner))
            return dict(state.clients.get(self.client, {})), None
        try:
            stored = decode_message(self._state_file(version).read_bytes())
        except OSError as error:
            raise MessageError(f"client {self.client} does not have version {version} of its state") from error
        return stored["state"], stored["targets"]

    def _keep_state(self, base: str | None, digest: str, client_state: Any, targets: Any) -> str | None:
        """Write the next version. Returns its name, or None if nothing changed."""
        if client_state is None and targets is None:
            return None
        had, relabelled = self.load_state(base)
        version = f"{_number_of(base) + 1:08d}-{digest}"
        next_state = had if client_state is None else client_state
        file = self._state_file(version)
        self._write(file, {"state": next_state, "targets": relabelled if targets is None else targets})
        return version

    def _remove_states(self, oldest: str | None) -> None:
        """Remove versions before `oldest`, which no checkpoint refers to."""
        for file in (self.folder / "states").glob("[0-9]*.safetensors"):
            if _number_of(file.stem) < _number_of(oldest):
                file.unlink()

    def _state_file(self, version: str) -> Path:
        return self.folder / "states" / f"{Path(version).name}.safetensors"

    def _step_file(self, k: int) -> Path:
        return self.folder / "states" / f"step{k % 2}.safetensors"  # the previous file is kept for a repeated request

    def _write(self, file: Path, content: Mapping[str, Any]) -> None:
        with open_atomic(file, "wb") as out:
            out.write(encode_message(content))


def _restore_member(member: Any) -> Any:
    return ClientEntry(member) if isinstance(member, str) else member


def _number_of(version: str | None) -> int:
    return 0 if version in (None, INITIAL) else int(version.partition("-")[0])
