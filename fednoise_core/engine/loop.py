"""The loop over phases and rounds, with evaluation and checkpoints. It is the same for all methods."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from fednoise_core.engine.client import Client
from fednoise_core.engine.client_store import ROOM
from fednoise_core.engine.evaluate import (
    EvaluatedModels,
    Evaluator,
    count_confusion,
    iterate_models,
    resolve_entries,
    valid_accuracy,
)
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.phase import Phase
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.record import Progress, Record
from fednoise_core.engine.state import State, kept_folder, load_checkpoint, save_checkpoint
from fednoise_core.engine.suspects import judge_held_out, judge_sites
from fednoise_core.engine.truth import Truth
from fednoise_core.engine.world import SERVER, World
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.label_errors.estimate import SiteLabels
from fednoise_core.ops.weights import Weights


class Stopped(RuntimeError):
    """The run was stopped on request after a round. Its checkpoint has been written."""


class Diverged(SpecError):
    """No client's update of a round was finite."""


@dataclass(frozen=True)
class Saving:
    """Place and frequency of checkpoints.

    Attributes:
        path: Path of the checkpoint, in an existing folder.
        key: Text that identifies further inputs of a run besides its arguments, such as the version of your own code. A
            checkpoint with another key is ignored.
        seconds: Seconds between checkpoints, longer if writing takes long. 0: every round.
        rounds: Additional checkpoint every `rounds` rounds. 0: by time only.
        stop: Function that is called after each round. If it returns True, the run writes a checkpoint and raises
            `Stopped`.
    """

    path: Path
    key: str = ""
    seconds: float = 20.0
    rounds: int = 0
    stop: Callable[[], bool] = bool  # bool() is False: never stop

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))  # a person may pass text

    def is_due(self, round: int, last: float, took: float) -> bool:
        """Return True if a checkpoint is due after this round.

        Args:
            round: Round number, from 1.
            last: time.monotonic() of the previous checkpoint.
            took: Seconds that it took to write the previous checkpoint.
        """
        # Checkpoints can be gigabytes: spend at most 5 % of the time on writing them.
        pause = self.seconds and max(self.seconds, 19 * took)
        return time.monotonic() - last >= pause or bool(self.rounds and round % self.rounds == 0)


@dataclass
class Outcome:
    """Results of a finished run in memory.

    Attributes:
        fed: The federation, with its traffic.
        state: The state after the last round.
        record: Metrics and diagnostics.
        views: The models to evaluate, the headline first.
        suspects: Estimates of label errors for every site.
        confusion: Confusion matrix of the headline view, int64 [K, K], from `count_confusion`.
        resumed: Round of the checkpoint from which the run was resumed, 0 without a resume.
        spent: Seconds and CPU seconds of earlier attempts, up to that checkpoint.
    """

    fed: Federation
    state: State
    record: Record
    views: EvaluatedModels
    suspects: list[SiteLabels]
    confusion: Tensor | None
    resumed: int
    spent: list[float]

    def models(self, view: str | None = None) -> Iterator[tuple[int, list[Weights]]]:
        """Look up the final models of a view, by default the headline.

        Yields:
            (client or SERVER, the member's models). The logits of several models are summed.
        """
        members = self.views[view] if view else next(iter(self.views.values()))
        return iterate_models(members, self.state.clients)


def run_loop(
    world: World,
    executor: Sequential,
    method: Any,
    truth: Truth,
    test: Pool,
    test_y: Tensor,
    *,
    saving: Saving | None = None,
    room: int = ROOM,
    label: str = "run",
    console: TextIO | None = None,
    progress: Path | None = None,
    on_round: Callable[[dict[str, Any]], object] | None = None,
) -> Outcome:
    """Run `method` to its end. Resume from a checkpoint if there is one.

    Args:
        world: The run's arrays and random streams.
        executor: Executor that runs the clients.
        method: The method, with its settings (a `FedAvg` of fednoise_core.methods, which the engine does not import).
        truth: The clean labels, for diagnostics.
        test: Test images.
        test_y: Their labels [n] int64.
        saving: Path and frequency of checkpoints. None: no checkpoints.
        room: Bytes of client states that may stay in memory. The rest goes to files.
        label: Name of the run in messages.
        console: Stream for one line per round.
        progress: File to which one JSON line per round is appended.
        on_round: Function that is called with each round's metrics (`Record.of_round`).

    Raises:
        Stopped: The run was stopped on request. Its checkpoint has been written.
        Diverged: No update of a round is finite.
    """
    run = RunLoop(world, executor, method, truth, saving, label, console)
    run.start_run(room, Evaluator(run.fed, test, test_y))
    return run.play_rounds(progress, on_round)


class RunLoop:
    """A run in progress: federation, state and record."""

    def __init__(
        self,
        world: World,
        executor: Sequential,
        method: Any,
        truth: Truth,
        saving: Saving | None,
        label: str,
        console: TextIO | None,
    ):
        self.began = time.monotonic(), time.process_time()
        self.world, self.method, self.truth = world, method, truth
        self.saving, self.label, self.console = saving, label, console
        self.fed = Federation(world, executor)
        self.spent = [0.0, 0.0]  # seconds, CPU seconds of earlier attempts
        self.saved_at, self.saving_took = time.monotonic(), 0.0

    def print_line(self, line: str) -> None:
        """Print a line that begins with the run's name, if there is a console."""
        if self.console is not None:
            print(f"{self.label}  {line}", file=self.console, flush=True)

    # the start

    def start_run(self, room: int, evaluator: Evaluator) -> None:
        """Load the checkpoint if there is one. Otherwise make the state before the first round and evaluate it."""
        fed, saving, checkpoint = self.fed, self.saving, self._load_checkpoint()
        self.evaluator = evaluator
        self.state: State = checkpoint[0] if checkpoint else self.init_state()
        self.record = Record.from_plain(checkpoint[1]) if checkpoint else Record()
        folder = kept_folder(saving.path, saving.key) if saving else None
        self.state.move_to(folder, room, self.world.device)
        if checkpoint:
            self.spent = checkpoint[1]["spent"]
            fed.bytes_up, fed.bytes_down = self.record.bytes_up, self.record.bytes_down
            fed.passes = self.record.passes
            self.print_line(f"resumed from round {self.state.round}")
        else:
            self.record.diagnostics += self.truth.label_noise(0)
            self._record_report(0, "start", {})
            self._evaluate_round("start")
        self.resumed, self.phases = self.state.round, self.method.list_phases(fed)

    def init_state(self) -> State:
        """Make the state before the first round."""
        state: State = self.method.init_state(self.fed)
        return state

    def _load_checkpoint(self) -> tuple[State, dict[str, Any]] | None:
        """Load the checkpoint. A damaged checkpoint is ignored, because a new start gives the same results."""
        saving = self.saving
        if saving is None:
            return None
        try:
            return load_checkpoint(saving.path, saving.key, self.world.device)
        except ArtifactError as error:
            print(f"{self.label}  {error}; the run starts from round 0", file=self.console or sys.stderr, flush=True)
            return None

    # a round

    def play_rounds(self, progress: Path | None, on_round: Callable[[dict[str, Any]], object] | None) -> Outcome:
        """Run the remaining rounds. The arguments are those of `run_loop`."""
        with closing(Progress(self.label, self.phases[-1].end, self.resumed, progress, self.console, on_round)) as log:
            while (phase := self.enter_phase()) is not None:
                self.play_round(phase, log)
                self.save_if_due(phase)
        return self.finish_run()

    def enter_phase(self) -> Phase | None:
        """Return the phase of the next round, and enter it if needed. Return None at the end of the run."""
        state = self.state
        while state.phase < len(self.phases):
            phase = self.phases[state.phase]
            if not state.entered:
                if phase.enter is not None and state.round < phase.end:
                    self.fed.phase_being_entered = (
                        phase.name
                    )  # part of the random streams' keys; otherwise they would equal those of the last round
                    with state.store.server_side():
                        phase.enter(self.fed, state)
                    self.fed.phase_being_entered = ""
                state.entered, state.since = True, state.round
            if not _is_over(state, phase):
                return phase
            state.phase, state.entered = state.phase + 1, False
        return None

    def play_round(self, phase: Phase, log: Progress) -> None:
        """Train one round, and evaluate it if that is due."""
        state = self.state
        state.round += 1
        self._record_report(state.round, phase.name, self._train_round(phase))
        accuracies = self._evaluate_round(phase.name) if self._is_evaluated(phase) else {}
        log.report_round(state.round, phase.name, accuracies, self.record)

    def _train_round(self, phase: Phase) -> dict[str, float]:
        """Run one round of the phase. Return its metrics, and the number of updates dropped as not finite."""
        fed, state = self.fed, self.state
        try:
            with state.store.server_side():
                report = phase.run_round(fed, state) or {}
        except FloatingPointError as error:
            raise self.make_diverged(str(error)) from error
        except Exception as error:  # a method may fail on an empty list of updates
            if fed.participants and len(fed.dropped) == len(fed.participants):
                raise self.make_diverged() from error
            raise
        asked, dropped = fed.participants, fed.dropped  # including fits in `Phase.enter`
        if dropped and len(dropped) == len(asked):
            raise self.make_diverged()
        fed.participants, fed.dropped = [], []
        if not dropped:
            return report
        self.print_line(f"round {state.round}: {self.describe_dropped(dropped)}")
        return {**report, "dropped_updates": float(len(dropped))}

    def describe_dropped(self, clients: list[int]) -> str:
        """Describe in a message which clients' updates were dropped, and why."""
        return f"not finite, dropped: the update of {name_clients(clients)}"

    def make_diverged(self, problem: str = "") -> Exception:
        """Make the error of a round without a finite update."""
        train, infinite = self.world.train, self.fed.infinite
        if not problem and infinite:  # the models are finite, so the learning rate is not the cause
            where = f"{self.label}: round {self.state.round}: no update is finite ({name_clients(self.fed.dropped)})"
            return Diverged(f"{where}: {infinite[0]!r} has numbers that are NaN or infinite, the model has none")
        problem = problem or f"no update is finite ({name_clients(self.fed.dropped)})"
        return Diverged(
            f"{self.label}: round {self.state.round}: {problem}: the training diverges. Lower train.lr (now "
            f"{train.lr:g}), or limit gradients by train.clip (now {train.clip:g})"
        )

    def _is_evaluated(self, phase: Phase) -> bool:
        train, round = self.world.train, self.state.round
        return self._is_last(phase) or round % train.eval_every == 0 or round > self.phases[-1].end - train.eval_last

    def _is_last(self, phase: Phase) -> bool:
        state = self.state
        later = self.phases[state.phase + 1 :]
        return _is_over(state, phase) and all(later_phase.end <= state.round for later_phase in later)

    def _record_report(self, round: int, phase: str, report: dict[str, float]) -> None:
        """Record the round's report and the bytes sent since the last call.

        Traffic of `init_state` is thus counted for round 0, and traffic of `Phase.enter` for the next round.
        """
        fed, record = self.fed, self.record
        record.passes = fed.passes
        record.work = fed.passes / fed.passes_a_round
        sent = {"bytes_up": fed.bytes_up - record.bytes_up, "bytes_down": fed.bytes_down - record.bytes_down}
        for name, value in {**report, **sent}.items():
            record.metrics.append((round, record.work, phase, "", -1, name, float(value)))
        record.bytes_up, record.bytes_down = fed.bytes_up, fed.bytes_down

    # evaluation

    def list_evaluated(self) -> tuple[EvaluatedModels, dict[str, Any]]:
        """List the models to evaluate, and the method's estimates. Both may name entries of client states."""
        with self.state.store.server_side():  # only the evaluation may read these entries
            return self.method.list_models(self.fed, self.state), self.method.estimate_noise(self.fed, self.state)

    def _evaluate_round(self, phase: str) -> dict[str, float]:
        """Record the scores and estimates of the round. Return the accuracy by view."""
        state, record, accuracies = self.state, self.record, {}
        views, estimates = self.list_evaluated()
        for view, client, metric, value in self.evaluator.evaluate_views(views, state.store):
            record.metrics.append((state.round, record.work, phase, view, client, metric, value))
            if client == -1 and metric == "accuracy":
                accuracies[view] = value
        record.diagnostics += self.truth.estimates(state.round, _to_host(resolve_entries(estimates, state.clients)))
        return accuracies

    # checkpoints and the end

    def save_if_due(self, phase: Phase) -> None:
        """Write a checkpoint if one is due, or if the run is to stop. In the latter case raise Stopped."""
        saving, state = self.saving, self.state
        if saving is None or self._is_last(phase):
            return
        stop = saving.stop()
        if stop or saving.is_due(state.round, self.saved_at, self.saving_took):
            before = time.monotonic()
            now = [self.spent[0] + before - self.began[0], self.spent[1] + time.process_time() - self.began[1]]
            save_checkpoint(saving.path, saving.key, state, {**self.record.to_plain(), "spent": now})
            self.saved_at = time.monotonic()
            self.saving_took = self.saved_at - before
        if stop:
            raise Stopped(f"{self.label}: paused after round {state.round}; run the same command to resume")

    def finish_run(self) -> Outcome:
        """Collect the results of the run."""
        state, record = self.state, self.record
        targets = {c: t.cpu().numpy() for c, t in state.relabelled.items()}
        record.diagnostics += self.truth.target_noise(state.round, targets)
        with state.store.server_side():
            views = self.method.list_models(self.fed, state)
        held_out = self._ask_clients(self.method.predict_held_out)
        if any(answer is not None for answer in held_out.values()):
            suspects = judge_held_out(self.fed, held_out)
        else:
            suspects = judge_sites(self.fed, views, state.clients, self._ask_clients(self.method.suspect_labels))
        record.diagnostics += self.truth.suspects(state.round, suspects)
        self._record_validation(views)
        headline, test = next(iter(views.values())), self.evaluator
        confused = count_confusion(self.fed, headline, state.clients, test.pool, test.y)
        return Outcome(self.fed, state, record, views, suspects, confused, self.resumed, self.spent)

    def _record_validation(self, views: EvaluatedModels) -> None:
        """Record the accuracy of the headline view on the validation splits. It does not count as traffic.

        It allows a choice between variants of a method without test data or clean labels.
        """
        headline, members = next(iter(views.items()))
        value, record = valid_accuracy(self.fed, members, self.state.clients), self.record
        if value is not None:
            phase = record.metrics[-1][2]
            record.metrics.append((self.state.round, record.work, phase, headline, SERVER, "valid_accuracy", value))

    def _ask_clients(self, question: Callable[[Client, Any], Any]) -> dict[int, Any]:
        """Run a hook of the method that scores labels on each client.

        The result is for the client's owner and does not count as traffic.
        """
        fed, state = self.fed, self.state
        before = fed.bytes_up, fed.bytes_down
        with state.store.server_side():
            broadcast = self.method.make_broadcast(fed, state)
        answers = fed.run_on_clients(state, fed.all, question, broadcast)
        fed.bytes_up, fed.bytes_down = before
        return dict(zip(fed.all, answers, strict=True))


def name_clients(clients: list[int]) -> str:
    """Name clients in a message, each once and in order."""
    return f"clients {', '.join(map(str, sorted(set(clients))))}"


def _is_over(state: State, phase: Phase) -> bool:
    if state.round >= phase.end:
        return True
    if phase.until is None or state.round <= state.since:
        return False
    with state.store.server_side():
        return phase.until(state)


def _to_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    return {k: _to_host(v) for k, v in value.items()} if isinstance(value, dict) else value
