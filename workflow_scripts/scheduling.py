"""What Snakemake's scheduler costs while jobs run."""

from __future__ import annotations

from typing import Any

__all__ = ["start_as_jobs_end"]

DEFAULT = (100, 1)  # Snakemake's own limit of job starts: 100 in a second


def start_as_jobs_end(workflow: Any) -> bool:
    """Take Snakemake's default limit of job starts away where jobs run on this machine; returns whether it was there.

    With the limit, Snakemake (9.27) looks for jobs to start one second after every look, and every job that ends adds a
    look of its own, in which each waiting job's inputs are looked at. So looks grow with jobs: 240 jobs of 0.3 s
    on four cores took 66 s with the limit and 57 s without. Local jobs start when another one ends, so the cores are
    their limit. A limit that the user set, and that of a cluster, stay.
    """
    scheduler = getattr(workflow, "scheduler", None)
    limiter = getattr(scheduler, "job_rate_limiter", None)
    if limiter is None or workflow.non_local_exec or (limiter.max_jobs, limiter.timespan) != DEFAULT:
        return False
    scheduler.job_rate_limiter = None  # type: ignore[union-attr]
    return True
