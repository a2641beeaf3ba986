"""The server of a real federation, which runs the rounds. The clients run at the sites."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from fednoise_core.api.checks import check_pools
from fednoise_core.engine import models
from fednoise_core.engine.client_store import ROOM, ClientStore
from fednoise_core.engine.evaluate import ClientEntry, EvaluatedModels, Evaluator, list_named
from fednoise_core.engine.loop import Outcome, RunLoop, Saving, name_clients
from fednoise_core.engine.output import make_summary, write_metrics
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.state import State, save_checkpoint
from fednoise_core.engine.truth import Truth
from fednoise_core.engine.world import SERVER, torch_switches
from fednoise_core.flower.executor import VERSION, Exchange, Sites
from fednoise_core.flower.folders import SERVER_DATA, RunSettings, load_data, make_world
from fednoise_core.flower.messages import INITIAL, SiteError
from fednoise_core.io import json_digest
from fednoise_core.ops.weights import Weights

NOWHERE = -1  # client number of the server, which has no rows


class _SitesRun(RunLoop):
    """A run whose clients are at sites. It evaluates only the server's models, because it has no others."""

    executor: Sites

    def init_state(self) -> State:
        state = super().init_state()
        states = {c: state.store.copy_for(c) for c in state.store}
        state.clients = ClientStore(
            {c: client_state if VERSION in client_state else {VERSION: INITIAL} for c, client_state in states.items()}
        )
        return state

    def list_evaluated(self) -> tuple[EvaluatedModels, dict[str, Any]]:
        views, _ = super().list_evaluated()
        return {name: members for name, members in views.items() if _is_servers(members)}, {}

    def describe_dropped(self, clients: list[int]) -> str:
        missed, self.executor.missed = set(self.executor.missed), []
        absent = f"left out: {name_clients(list(missed))}" if missed else ""
        bad = [c for c in clients if c not in missed]
        return "; ".join(filter(None, [absent, super().describe_dropped(bad) if bad else ""]))

    def make_diverged(self, problem: str = "") -> Exception:
        if not self.executor.missed:
            return super().make_diverged(problem)
        return SiteError(f"round {self.state.round}: no site gave an update that can be used. Look at the lines above")

    def finish_run(self) -> Outcome:
        fed, state, saving = self.fed, self.state, self.saving
        assert saving is not None  # `run_on_sites` gives one
        save_checkpoint(saving.path, saving.key, state, {**self.record.to_plain(), "spent": self.spent})
        with state.store.server_side():
            views, sent = self.method.list_models(fed, state), self.method.make_broadcast(fed, state)
        judges = {c: models for c in fed.all if (models := _list_judges(views, c)) is not None}
        if absent := self.executor.judge_labels(state, judges, sent):
            self.print_line(f"{name_clients(absent)} wrote no suspects.csv. Start them, and run this again")
        if len(judges) < len(fed.all):
            self.print_line("the sites write no suspects.csv: the server does not have what their models are made of")
        evaluated, _ = self.list_evaluated()
        return Outcome(fed, state, self.record, evaluated, [], None, self.resumed, self.spent)


def _is_servers(members: Any) -> bool:
    return all(c == SERVER and all(isinstance(model, Weights) for model in list_named(named)) for c, named in members)


def _list_judges(views: EvaluatedModels, client: int) -> list[tuple[int, list[Weights | str]]] | None:
    """List the models for `judge_sites` at a client, its own models by name. None: the server cannot send them."""
    personal = [member for member in next(iter(views.values())) if member[0] == client]
    shared = next((members for members in views.values() if members[0][0] == SERVER), [])
    judges = [
        (c, [model.name if isinstance(model, ClientEntry) else model for model in list_named(named)])
        for c, named in personal or shared
    ]
    plain = all(isinstance(model, str | Weights) for _, models in judges for model in models)
    return judges if judges and plain else None


def run_on_sites(folder: Path, exchange: Exchange, sizes: Mapping[int, int], console: TextIO | None = None) -> Outcome:
    """Run a federation whose clients are at sites. Resume from the folder's checkpoint if there is one.

    Args:
        folder: The server's folder, with run.json and server.npz. The checkpoint, which is not removed, and the results
            are written to it.
        exchange: Function that sends requests to the sites.
        sizes: Number of training samples of each client, as reported by the sites.
        console: Stream for one line per round.

    Returns:
        The outcome. Its client states are names of versions at the sites.

    Raises:
        SpecError: A setting is wrong, or the method cannot run at sites.
        SiteError: A site refused a request, or did not give an answer that the run needs. The same call resumes from
            the last checkpoint.
    """
    settings = RunSettings.load(folder)
    method = settings.make_method()
    images, arrays, _ = load_data(folder, settings, SERVER_DATA)
    world = make_world(settings, images, arrays, NOWHERE)
    check_pools(settings.method["name"], method, world.train, world)
    world.sizes = [sizes[c] for c in range(world.n)]
    used = [size for size in world.sizes if size]
    world.samples_a_round = min(world.cohort, len(used)) * sum(used) / max(len(used), 1)
    saving = Saving(folder / "checkpoint.pt", json_digest(settings.digest, world.sizes), seconds=1e9, rounds=1)
    truth = Truth(None, np.zeros(0, np.int64), [np.zeros(0, np.int64)] * world.n, world.classes)
    test = Pool(arrays["x_test"], images.mean, images.std)
    with torch_switches(1), closing(Sites(world, method, settings.digest, exchange, console)) as executor:
        run = _SitesRun(world, executor, method, truth, saving, settings.method["name"], console)
        run.executor = executor
        run.start_run(ROOM, Evaluator(run.fed, test, torch.from_numpy(arrays["y_test"])))
        outcome = run.play_rounds(folder / "progress.jsonl", None)
    write_metrics(folder / "metrics.parquet", outcome.record)
    if outcome.views:
        models.write_models(folder / "model.safetensors", outcome, models.describe_data(images.as_arrays()))
        settings.write_summary(folder, make_summary(outcome, {}), test_known=True)
    return outcome
