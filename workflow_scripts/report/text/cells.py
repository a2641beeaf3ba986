"""The cells of shown tables, and the words that several kinds of tables share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pandas as pd

from workflow_scripts.report.text.footnotes import append_marks, merge_marks

METRIC_WORDS = {
    "best": "best round, chosen on test data",
    "last": "last round",
    "last10_mean": "mean of the last ten evaluations",
}
MISSING = "–"
PARTS = ("dataset", "noise", "partition")


@dataclass(frozen=True)
class Cell:
    """A cell as shown; bold: the best of its column."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class GridRow:
    """One row. `style`: "" a method, "own" an entry, "ceiling" set apart, "printed" numbers, "group" a heading."""

    stub: str
    cells: list[Cell]
    style: str = ""


@dataclass
class Grid:
    """A table as shown. `levels`: header lines above the columns, each a list of (text, columns spanned)."""

    title: str
    caption: str
    stub: str
    levels: list[list[tuple[str, int]]]
    rows: list[GridRow]
    notes: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Columns besides the first."""
        return sum(span for _, span in self.levels[-1])


def settings_of(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """The settings of a frame, as (data set, noise, partition) ids.

    Equal data sets and noises stand side by side, so that their heads can span.

    Args:
        frame: With the columns of `PARTS`.
    """
    settings = list(dict.fromkeys(frame[list(PARTS)].itertuples(index=False, name=None)))
    rank = [{value: n for n, value in enumerate(dict.fromkeys(key[p] for key in settings))} for p in range(3)]
    return sorted(settings, key=lambda key: [rank[p][key[p]] for p in range(3)])


def in_setting(frame: pd.DataFrame, key: Sequence[str]) -> pd.Series:
    """Mark the rows of a frame that belong to a setting.

    Args:
        frame: With the columns of `PARTS`.
        key: Ids of data set, noise and partition. Further items are ignored.
    """
    return (frame["dataset"] == key[0]) & (frame["noise"] == key[1]) & (frame["partition"] == key[2])


def title_of(block: pd.DataFrame) -> str:
    """A setting in words.

    Args:
        block: Rows of one setting, with its labels.
    """
    row = block.iloc[0]
    return " · ".join(str(row[f"{part}_label"]) for part in PARTS)


def method_words(group: pd.DataFrame) -> str:
    """A method's label with its marks.

    Args:
        group: Rows of one method, with the columns `method_label` and `marks`.
    """
    return append_marks(str(group["method_label"].iloc[0]), merge_marks(group["marks"]))


def marked_method(row: pd.Series) -> str:
    """A method's label with its marks and its number of diverged runs, for tables that do not show it in cells.

    Args:
        row: With the columns `method_label` and `marks`, and those of `diverged_words`.
    """
    return ", ".join(filter(None, [append_marks(str(row["method_label"]), row["marks"]), diverged_words(row)]))


def diverged_words(row: pd.Series) -> str:
    """Count the diverged runs behind a row: "diverged (2 of 3)", or "" if all are finite.

    Args:
        row: With `diverged`, and `seeds` or `runs`.
    """
    lost = row.get("diverged", 0)
    return f"diverged ({lost:.0f} of {row['seeds' if 'seeds' in row else 'runs']:.0f})" if lost else ""


def mean_std(mean: float, std: float, digits: int, hide_zero: bool = False) -> str:
    """A mean with its deviation: "91.17 ± 0.51".

    Args:
        mean: NaN is shown as MISSING.
        std: Left out if it is NaN.
        digits: Decimals of both.
        hide_zero: Whether a deviation that is shown as 0 is left out, too.
    """
    if math.isnan(mean):
        return MISSING
    spread = "" if math.isnan(std) or (round(std, digits) == 0 and hide_zero) else f" ± {format_number(std, digits)}"
    return format_number(mean, digits) + spread


def format_number(value: float, digits: int) -> str:
    """A number with so many decimals and thin spaces between thousands; MISSING for NaN.

    It is rounded to six decimals first. Figures and tables sum in different orders, and a mean halfway between two
    shown numbers would otherwise be rounded differently in them.

    Args:
        value: The number.
        digits: Decimals.
    """
    return MISSING if math.isnan(value) else f"{round(value, 6):,.{digits}f}".replace(",", "\u202f")


def count_words(values: pd.Series, noun: str = "seed") -> str:
    """A count in words: "n = 3 seeds", or a range where cells differ.

    Args:
        values: The counts of the cells.
        noun: What is counted, in the singular.
    """
    low, high = int(values.min()), int(values.max())
    return f"n = {low} {noun}{'s' * (low != 1)}" if low == high else f"n = {low}–{high} {noun}s"


def seeds_words(values: pd.Series) -> str:
    """Describe the numbers of cells by how many seeds there are.

    Args:
        values: The number of seeds of each cell.
    """
    return "one seed, so no spread" if values.max() == 1 else f"mean ± sample standard deviation, {count_words(values)}"


def levels_of(frame: pd.DataFrame, settings: Sequence[tuple[str, ...]]) -> tuple[list[list[tuple[str, int]]], str]:
    """Header lines of the parts that vary between settings.

    Args:
        frame: With the columns of `PARTS` and their labels.
        settings: As `settings_of` gives them.

    Returns:
        The lines, each a list of (text, columns spanned), and the words of the parts that do not vary.
    """
    labels = [dict(zip(frame[part], frame[f"{part}_label"], strict=True)) for part in PARTS]
    varying = [p for p in range(3) if len({key[p] for key in settings}) > 1]
    common = " · ".join(labels[p][settings[0][p]] for p in range(3) if p not in varying)
    levels = []
    for p in varying or [1]:
        last = p == (varying or [1])[-1]
        heads = [
            tuple(key[q] for q in varying if q <= p) for key in settings
        ]  # a head spans the columns with equal heads above them
        spans = [1] * len(heads) if last else [len(list(group)) for _, group in groupby(heads)]
        starts = np.cumsum([0, *spans[:-1]])
        levels.append([(labels[p][settings[start][p]], span) for start, span in zip(starts, spans, strict=True)])
    return levels, common if varying else " · ".join(labels[p][settings[0][p]] for p in (0, 2))


def format_signed(value: float, digits: int) -> str:
    """A number with its sign: "+1.5", "−0.2".

    Args:
        value: The number.
        digits: Decimals.
    """
    return f"{round(value, 6):+.{digits}f}".replace("-", "−")


def format_interval(row: pd.Series, key: str, *, signed: bool = True) -> str:
    """A number with its interval, if it has one: "+1.5 [+0.2, +2.8]". A narrow interval has one more decimal.

    Args:
        row: With the column `key`, and `<key>_low` and `<key>_high` for the ends, NaN if there are none.
        key: The number's column.
        signed: With its sign.
    """
    if pd.isna(row[key]):
        return MISSING
    number, ends = format_signed if signed else format_number, [row[f"{key}_low"], row[f"{key}_high"]]
    digits = 2 if 0 < ends[1] - ends[0] < 0.1 else 1
    brackets = "" if pd.isna(ends[0]) else f" [{', '.join(number(end, digits) for end in ends)}]"
    return number(row[key], digits) + brackets
