"""Snakemake's scheduler looks for jobs when one ends, not ever more often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from workflow_scripts.scheduling import start_as_jobs_end


def workflow(limit: tuple[int, float] | None, cluster: bool = False) -> Any:
    limiter = None if limit is None else SimpleNamespace(max_jobs=limit[0], timespan=limit[1])
    return SimpleNamespace(scheduler=SimpleNamespace(job_rate_limiter=limiter), non_local_exec=cluster)


def test_the_default_limit_goes_where_jobs_are_local() -> None:
    made = workflow((100, 1.0))
    assert start_as_jobs_end(made)
    assert made.scheduler.job_rate_limiter is None


@pytest.mark.parametrize(("limit", "cluster"), [((5, 1.0), False), ((100, 60.0), False), ((100, 1.0), True)])
def test_a_limit_of_the_user_and_of_a_cluster_stays(limit: tuple[int, float], cluster: bool) -> None:
    made = workflow(limit, cluster)
    assert not start_as_jobs_end(made)
    assert made.scheduler.job_rate_limiter is not None


def test_without_a_limit_or_a_scheduler_nothing_happens() -> None:
    assert not start_as_jobs_end(workflow(None))
    assert not start_as_jobs_end(SimpleNamespace(scheduler=None))
