"""Settings that tables and figures share: the title, the runs that they show, and the accuracy that counts."""

from typing import Annotated, Literal

from pydantic import Field

from fednoise_core.settings.declare import Distinct, Settings

Ids = Annotated[Distinct[str], Field(min_length=1)]
Chosen = Annotated[Ids | None, Field(description="Only these ids, in this order; null: all.")]
Metric = Literal["best", "last", "last10_mean"]


class OutputTitle(Settings):
    """The title of a table or figure."""

    title: Annotated[str | None, Field(min_length=1, description="Shown above it.")] = None


class RunLists(Settings):
    """Lists of ids that select runs of a grid."""

    datasets: Chosen = None
    noises: Chosen = None
    partitions: Chosen = None
    methods: Chosen = None
    seeds: Annotated[
        Annotated[Distinct[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None,
        Field(description="Only these seeds; null: all."),
    ] = None


class RunSelection(RunLists, OutputTitle):
    """Which runs a table or figure shows, and in which order. Ids without runs at the present scale are skipped."""
