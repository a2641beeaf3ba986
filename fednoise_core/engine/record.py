"""Record: metrics and diagnostics that are collected during a run.

It is part of the checkpoint, so a resumed run writes the same files as an uninterrupted run.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO


@dataclass
class Record:
    """Metrics and diagnostics of a run.

    Attributes:
        metrics: (round, work, phase, view, client, metric, value).
        diagnostics: (round, client, metric, value).
        passes: Samples times forward-backward passes.
        work: `passes` in units of FedAvg rounds.
        bytes_up: Bytes of updates so far.
        bytes_down: Bytes of broadcasts so far.
    """

    metrics: list[tuple[int, float, str, str, int, str, float]] = field(default_factory=list)
    diagnostics: list[tuple[int, int, str, float]] = field(default_factory=list)
    passes: int = 0  # stored in addition to `work`, from which it cannot be computed exactly
    work: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0

    def to_plain(self) -> dict[str, Any]:
        """Turn the record into lists and numbers, for a checkpoint."""
        return {
            "metrics": [list(r) for r in self.metrics],
            "diagnostics": [list(r) for r in self.diagnostics],
            "passes": self.passes,
            "work": self.work,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Record:
        """Make a record from the result of `to_plain`."""
        return cls(
            [tuple(r) for r in plain["metrics"]],
            [tuple(r) for r in plain["diagnostics"]],
            plain["passes"],
            plain["work"],
            plain["bytes_up"],
            plain["bytes_down"],
        )

    def of_round(self, number: int) -> dict[str, Any]:
        """Collect a round's metrics over all clients.

        Returns:
            `round`, `phase`, `work`, the method's own metrics, `bytes_up` and `bytes_down`. If the round was evaluated,
            also `views` {view: {metric: value}}, and the first view's metrics by name.
        """
        rows = []
        for row in reversed(self.metrics):
            if row[0] < number:
                break
            rows.append(row)
        report: dict[str, Any] = {"round": number}
        views: dict[str, dict[str, float]] = {}
        for _, work, phase, view, client, metric, value in reversed(rows):
            report |= {"phase": phase, "work": work}
            if client == -1:
                (views.setdefault(view, {}) if view else report)[metric] = value
        return {**report, **next(iter(views.values()), {}), "views": views}

    def curve(self, view: str, metric: str = "accuracy") -> list[tuple[int, float]]:
        """List the values of a view's metric by round.

        Returns:
            (round, mean over the view's members), in order.
        """
        return [(r, v) for r, _, _, w, c, m, v in self.metrics if w == view and c == -1 and m == metric]

    def phases(self) -> list[dict[str, Any]]:
        """List the phases that had at least one round, in order.

        Rounds are identified by their metric "bytes_up", which every round has.

        Returns:
            {"name", "first", "last"} of each phase.
        """
        phases: list[dict[str, Any]] = []
        for round, name in ((r, phase) for r, _, phase, _, _, metric, _ in self.metrics if r and metric == "bytes_up"):
            if phases and phases[-1]["name"] == name:
                phases[-1]["last"] = round
            else:
                phases.append({"name": name, "first": round, "last": round})
        return phases


class Progress:
    """Progress of a run, one line per round: text on the console, and JSON in `path` for `fednoise progress`.

    Args:
        label: Name of the run.
        total: Rounds of the whole run.
        done: Rounds before this attempt.
        path: File to which JSON lines are appended, or None.
        console: Stream for the lines of text, or None.
        listener: Function that is called with the metrics of each round (`Record.of_round`), `of` (the number of all
            rounds), and `done_before` (the rounds before a resume).
    """

    def __init__(
        self,
        label: str,
        total: int,
        done: int,
        path: Path | None,
        console: TextIO | None,
        listener: Callable[[dict[str, Any]], object] | None = None,
    ):
        self.label, self.total, self.first, self.listener = label, total, done, listener
        self.console, self.began = console, time.monotonic()
        self.file: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a", encoding="utf-8")

    def report_round(self, number: int, phase: str, accuracy: dict[str, float], record: Record) -> None:
        """Report a finished round.

        Args:
            number: The round, from 1.
            phase: Its phase.
            accuracy: Accuracy by view, {} if the round was not evaluated.
            record: The run's record, for the listener.
        """
        if self.listener is not None:
            self.listener({**record.of_round(number), "of": self.total, "done_before": self.first})
        spent = time.monotonic() - self.began
        left = spent / max(number - self.first, 1) * (self.total - number)
        if self.file is not None:
            row = {
                "run": self.label,
                "round": number,
                "of": self.total,
                "phase": phase,
                "accuracy": accuracy,
                "seconds": round(spent, 3),
                "left": round(left, 1),
                "time": round(time.time(), 1),
            }
            self.file.write(json.dumps({k: v for k, v in row.items() if v == v}) + "\n")
            self.file.flush()
        if self.console is not None:
            texts = {view: "diverged" if math.isnan(v) else f"{100 * v:.2f} %" for view, v in accuracy.items()}
            seen = "  ".join(f"{view} {value}" for view, value in texts.items())
            print(
                f"{self.label}  {phase}  round {number}/{self.total}  {seen}  {spent:.1f} s, {left:.0f} s left",
                file=self.console,
                flush=True,
            )

    def close(self) -> None:
        """Close the file of JSON lines."""
        if self.file is not None:
            self.file.close()
