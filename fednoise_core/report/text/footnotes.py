"""The marks beside a method's name: what it was given, or what its accuracy is, that others' are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Snakemake imports this at every start
    import pandas as pd

__all__ = [
    *("MARKS", "NO_MEMBERS", "ORACLE", "PERSONAL"),
    *("as_told_notes", "marked", "marks_of", "meaning", "notes", "together"),
]

ORACLE, PRIVATE, PERSONAL, POOLED = "†", "‡", "§", "¶"
MARKS = {
    ORACLE: "was told the true noise rate, which no client knows in practice",
    PRIVATE: "clients released their labels under label differential privacy",
    PERSONAL: "the mean over personal models, not one global model",
    POOLED: "no federation: trained in one place on everybody's samples, as a reference",
}
NO_MEMBERS = ORACLE + POOLED  # not compared with the others: no federation can have them, so they are never set in bold


def marks_of(summary: Mapping[str, Any], view: str | None = None) -> str:
    """The marks of a run, in their fixed order, by its summary.json; `view`: the one shown, if not the headline's."""
    has = {
        ORACLE: summary.get("oracle_rate"),
        PRIVATE: summary.get("epsilon") is not None,
        PERSONAL: (view or summary.get("headline_view")) == "personal",
        POOLED: summary.get("pooled"),
    }
    return "".join(mark for mark in MARKS if has[mark])


def together(found: Iterable[Any]) -> str:
    """Every mark of any of these texts, once, in order. A cell that a CSV left empty has none."""
    texts = "".join(text for text in found if isinstance(text, str))
    return "".join(mark for mark in MARKS if mark in texts)


def marked(label: str, marks: Any) -> str:
    """ "Co-teaching †"."""
    return f"{label} {together([marks])}".rstrip()


def notes(frame: pd.DataFrame) -> list[str]:
    """A sentence for each mark in a frame's column `marks`; ‡ with its ε if the frame has the column `epsilon`."""
    epsilons = frame["epsilon"].dropna() if "epsilon" in frame else ()
    return [f"{mark} {meaning(mark, epsilons)}." for mark in together(frame["marks"])]


def meaning(mark: str, epsilons: Iterable[float] = ()) -> str:
    """What a mark says; epsilons: of the runs that are marked ‡."""
    told = ", ".join(dict.fromkeys(f"{value:.3g}" for value in sorted(epsilons)))
    return f"{MARKS[mark]} (ε = {told})" if mark == PRIVATE and told else MARKS[mark]


def as_told_notes(frame: pd.DataFrame) -> list[str]:
    """A sentence about the methods whose own rate is, where the column `as_told` says so, that of the setting: there
    they stand beside an oracle. The setting's words are in the column `setting`, else the noise's are taken.
    """
    if "as_told" not in frame or not frame["as_told"].any():
        return []
    told = frame[frame["as_told"] > 0]
    labels = ", ".join(told["method_label"].unique())
    where = "; ".join(told["setting" if "setting" in told else "noise_label"].unique())
    return [
        f"The noise rate that {labels} goes by is the nominal one in {where}: there it is as if told ({ORACLE}), "
        "and not compared."
    ]
