"""Runs without a trusted test set, whose accuracy is only agreement with given labels. Notes say so."""

from collections.abc import Iterable

from workflow_scripts.report.runs.run import RecordedRun

WORDS = "agreement with given labels"


def untrusted_datasets(runs: Iterable[RecordedRun]) -> list[str]:
    """Ids of the data sets whose test set is held-out given labels, which may be wrong.

    Args:
        runs: The runs. Their summaries tell which test sets are trusted.
    """
    return sorted({run.listed.dataset for run in runs if not run.summary.get("test_known", True)})


def untrusted_note(names: Iterable[str]) -> str:
    """The sentence that goes with every number made from such data sets.

    Args:
        names: Their ids.

    Returns:
        The sentence, or "" for none.
    """
    listing = ", ".join(names)
    return (
        f"There are no trusted test labels of {listing}: accuracy there is {WORDS} of a held-out share."
        if listing
        else ""
    )
