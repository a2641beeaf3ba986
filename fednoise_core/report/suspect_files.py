"""suspects.csv, sites.csv and decisions.csv as their readers see them, every cell checked."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fednoise_core.io import ArtifactError, plain_cell

__all__ = ["CHOICES", "DECISIONS", "Decision", "Site", "Suspect", "read_decisions", "read_sites", "read_suspects"]

VERDICTS = ("wrong", "check", "keep")
CHOICES = ("keep", "relabel", "drop")
DECISIONS = (*("sample", "source", "client", "site", "given", "given_name", "decision", "label", "label_name", "data"),)
"""Columns of decisions.csv; the page's script writes the same."""


@dataclass(frozen=True)
class Suspect:
    """One row of suspects.csv. line: of the file, for messages; sample: row in the arrays artifact."""

    line: int
    sample: int
    source: str
    client: int
    site: str
    given: int
    given_name: str
    proposed: int
    proposed_name: str
    p_wrong: float
    p_proposed: float
    verdict: str


@dataclass(frozen=True)
class Site:
    """One row of sites.csv. wrong, low, high: estimated number of wrong labels and its 90 % interval."""

    client: int
    site: str
    samples: int
    wrong: float
    low: float
    high: float
    named: int
    check: int


@dataclass(frozen=True)
class Decision:
    """What a person decided about one sample: keep its given label, give it `label`, or drop it. data: digest of the
    data that the page was made of; "" where that is not known.
    """

    line: int
    source: str
    given: int
    given_name: str
    choice: str
    label: int
    label_name: str
    data: str


def read_suspects(path: Path) -> list[Suspect]:
    """All rows, in the order of the file. Raises ArtifactError naming file, line and column."""
    return [
        Suspect(
            line=row.line,
            sample=row.number("sample"),
            source=row.text("source"),
            client=row.number("client"),
            site=row.text("site"),
            given=row.number("given"),
            given_name=row.text("given_name"),
            proposed=row.number("proposed"),
            proposed_name=row.text("proposed_name"),
            p_wrong=row.share("p_wrong"),
            p_proposed=row.share("p_proposed"),
            verdict=row.one_of("verdict", VERDICTS),
        )
        for row in _rows(path)
    ]


def read_sites(path: Path) -> list[Site]:
    """All rows, in the order of the file. Raises ArtifactError naming file, line and column."""
    return [
        Site(
            client=row.number("client"),
            site=row.text("site"),
            samples=row.number("samples"),
            wrong=row.amount("wrong"),
            low=row.amount("wrong_low"),
            high=row.amount("wrong_high"),
            named=row.number("named"),
            check=row.number("check"),
        )
        for row in _rows(path)
    ]


def read_decisions(path: Path) -> list[Decision]:
    """All rows, in the order of the file. Raises ArtifactError naming file, line and column."""
    return [
        Decision(
            line=row.line,
            source=row.text("source"),
            given=row.number("given"),
            given_name=row.text("given_name"),
            choice=row.one_of("decision", CHOICES),
            label=row.number("label"),
            label_name=row.text("label_name"),
            data=row.text("data"),
        )
        for row in _rows(path)
    ]


@dataclass(frozen=True)
class _Row:
    """One row; a cell that is missing or not of its kind raises ArtifactError."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        if self.cells.get(column) is None:
            raise ArtifactError(f"{self.path}, line {self.line}: no cell {column}; it has {', '.join(self.cells)}")
        return plain_cell(self.cells[column])

    def number(self, column: str) -> int:
        return int(self._kind(column, lambda text: text.isascii() and text.isdecimal(), "a whole number from 0"))

    def amount(self, column: str) -> float:
        return float(self._kind(column, lambda text: 0 <= float(text) < float("inf"), "a number from 0"))

    def share(self, column: str) -> float:
        return float(self._kind(column, lambda text: 0 <= float(text) <= 1, "a number 0..1"))

    def one_of(self, column: str, known: Sequence[str]) -> str:
        return self._kind(column, lambda text: text in known, f"one of {', '.join(known)}")

    def _kind(self, column: str, right: Callable[[str], bool], wanted: str) -> str:
        text = self.text(column)
        try:
            if len(text) < 20 and right(text):
                return text
        except ValueError:
            pass
        raise ArtifactError(f"{self.path}, line {self.line}: {column} is {text[:40]!r}; {wanted} is needed")


def _rows(path: Path) -> Iterator[_Row]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            for cells in table:
                if None in cells:
                    raise ArtifactError(f"{path}, line {table.line_num}: more cells than the first line has columns")
                yield _Row(path, table.line_num, cells)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not UTF-8 at byte {error.start}; save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise ArtifactError(f"{path}: no CSV ({error})") from error
