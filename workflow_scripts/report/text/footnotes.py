"""The marks beside a method's name. They show special knowledge of the method, or a special kind of accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Snakemake imports this at every start
    import pandas as pd

ORACLE, PRIVATE, PERSONAL, POOLED = "†", "‡", "§", "¶"
MARKS = {
    ORACLE: "was told the true noise rate, which no client knows in practice",
    PRIVATE: "clients released their labels under label differential privacy",
    PERSONAL: "the mean over personal models, not one global model",
    POOLED: "no federation: trained in one place on everybody's samples, as a reference",
}
SIGNS = {mark: mark for mark in MARKS}
# words that replace the marks in figures, which have no footnotes
WORDS = {
    ORACLE: "told the noise rate",
    PRIVATE: "label privacy",
    PERSONAL: "personal models",
    POOLED: "pooled data",
}
# Methods with these marks have knowledge that no federation can have. They are not compared, and never set in bold.
NO_MEMBERS = (ORACLE, POOLED)


def marks_of(summary: Mapping[str, Any]) -> str:
    """The marks of a run, in their fixed order.

    Args:
        summary: Its summary.json.
    """
    has = {
        ORACLE: summary.get("oracle_rate"),
        PRIVATE: summary.get("epsilon") is not None,
        PERSONAL: summary.get("headline_view") == "personal",
        POOLED: summary.get("pooled"),
    }
    return "".join(mark for mark in MARKS if has[mark])


def merge_marks(mark_texts: Iterable[Any]) -> str:
    """Merge the marks of several texts, each once, in order.

    Args:
        mark_texts: Texts of marks. An empty cell of a CSV, which is not a text, has no marks.
    """
    texts = "".join(text for text in mark_texts if isinstance(text, str))
    return "".join(mark for mark in MARKS if mark in texts)


def append_marks(label: str, marks: Any) -> str:
    """A label with its marks behind it: "Co-teaching †".

    Args:
        label: A method's name.
        marks: A text of marks.
    """
    return f"{label} {merge_marks([marks])}".rstrip()


def append_words(label: str, marks: Any) -> str:
    """A label with the words of its marks behind it: "Co-teaching (told the noise rate)".

    Args:
        label: A method's name.
        marks: A text of marks.
    """
    words = ", ".join(WORDS[mark] for mark in merge_marks([marks]))
    return f"{label} ({words})" if words else label


def explain_marks(frame: pd.DataFrame, signs: Mapping[str, str] = SIGNS) -> list[str]:
    """A sentence for each mark in a frame.

    Args:
        signs: Beginning of the sentence of each mark.
        frame: With the column `marks`. If it has the column `epsilon`, the sentence on ‡ names the values.
    """
    epsilons = frame["epsilon"].dropna() if "epsilon" in frame else ()
    values = ", ".join(dict.fromkeys(f"{value:.3g}" for value in sorted(epsilons)))
    meanings = MARKS | ({PRIVATE: f"{MARKS[PRIVATE]} (ε = {values})"} if values else {})
    return [f"{signs[mark]} {meanings[mark]}." for mark in merge_marks(frame["marks"])]


def explain_true_rates(frame: pd.DataFrame) -> list[str]:
    """Return a sentence on the methods whose own rate happens to be that of the setting, as if they were oracles.

    Args:
        frame: With the column `as_told`. The setting's words are in the column `setting`, else the noise's are used.
    """
    if "as_told" not in frame or not frame["as_told"].any():
        return []
    assuming = frame[frame["as_told"] > 0]
    labels = "; ".join(assuming["method_label"].unique())
    where = "; ".join(
        f"“{place}”" for place in assuming["setting" if "setting" in assuming else "noise_label"].unique()
    )
    return [f"The noise rate that {labels} assumes is the true one in {where}. So results there are not compared."]
