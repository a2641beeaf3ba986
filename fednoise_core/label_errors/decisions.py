"""Rows of suspects.csv and decisions.csv, and the digest that identifies the data of a decision."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from fednoise_core.io import json_digest
from fednoise_core.label_errors.csv_rows import Amount, Count, CsvRow

DECISIONS = (*("sample", "source", "client", "site", "given", "given_name", "decision", "label", "label_name", "data"),)
"""Columns of decisions.csv; the page's script writes the same."""
LITTLE = 0.6  # with less agreement on unseen labels, images should be encoded; see docs/clean_your_labels.md

Probability = Annotated[float, Field(ge=0, le=1)]


class Suspect(CsvRow):
    """One row of suspects.csv. sample: row in the arrays artifact. Not all methods have the last three columns."""

    sample: Count
    source: str
    client: Count
    site: str
    given: Count
    given_name: str
    proposed: Count
    proposed_name: str
    p_wrong: Probability
    p_proposed: Probability
    verdict: Literal["wrong", "check", "keep"]
    contradicts: bool
    blank: bool
    out_of_scope: Amount = 0.0
    near_copy: bool = False
    predicted: int = -1


class Decision(CsvRow):
    """One row of decisions.csv: keep the given label of a sample, give it `label`, or drop it.

    source: row of the npz, or file below train/. given, given_name: the label for which the decision was made. data:
    digest of the data of the page, or "" if it is not known.
    """

    source: str
    given: Count
    given_name: str
    decision: Literal["keep", "relabel", "drop"]
    label: Count
    label_name: str
    data: str = ""


def describe_harm(p_wrong: Sequence[float], p_proposed: Sequence[float]) -> str:
    """Explain why relabelling is not expected to help. The text is "" if it is expected to help.

    Args:
        p_wrong: P(wrong) of the labels that would be replaced.
        p_proposed: P(the proposed label is right).
    """
    right, lost = sum(p_proposed), sum(1 - p for p in p_wrong)
    if not len(p_wrong) or right > lost:
        return ""
    count = f"of {len(p_wrong):,} labels {lost:,.0f} are expected to be right, and {right:,.0f} of the proposed ones"
    return f"relabelling would not help: {count}. Decide by hand on the page"


def data_digest(source_sha256: Mapping[str, str]) -> str:
    """Compute the digest that identifies the data of a decision.

    Args:
        source_sha256: Content of `Arrays.source_sha256`.

    Returns:
        16 hex digits, or "" if there is no content (folders without a CSV).
    """
    return json_digest(dict(source_sha256)) if source_sha256 else ""
