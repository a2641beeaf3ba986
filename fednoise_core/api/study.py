"""fn.study: all runs of a study as one DataFrame, and comparisons of methods with a baseline."""

import os
from collections.abc import Mapping
from typing import Any, cast

import pandas as pd
from scipy import stats

from fednoise_core.api.run import load
from fednoise_core.data.settings import load_source
from fednoise_core.index import read_runs
from fednoise_core.io import SpecError
from fednoise_core.methods import METHODS, method_class
from fednoise_core.noise.registry import NOISES
from fednoise_core.partition.registry import PARTITIONS
from fednoise_core.settings.declare import did_you_mean, flatten_settings, with_defaults
from fednoise_core.settings.functions import expect_type, resolve_kind
from fednoise_core.settings.train import Train

SETTING = ["dataset", "noise", "partition"]
ACCURACIES = ("best", "best_round", "last", "last10_mean", "round0")
LEVEL = 0.95  # of the intervals


class StudyFrame(pd.DataFrame):
    """Runs of a study as a pandas.DataFrame with one row per run. `compare` also works on a subset of the rows."""

    @property
    def _constructor(self) -> type["StudyFrame"]:
        return StudyFrame

    def compare(self, baseline: str, metric: str = "last10_mean") -> pd.DataFrame:  # type: ignore[override]
        """Compare every other method with a baseline method, over pairs of runs with the same setting and seed.

        The two runs of a pair share labels, partition, cohorts and first weights.

        Args:
            baseline: Id of the method to compare with.
            metric: Column to compare.

        Returns:
            One row per setting and other method: the number of `pairs`, the mean `gain`, the ends `low` and `high` of
            its 95 % confidence interval by Student's t (NaN for one pair), and the number of pairs `won`. If a run of
            the row diverged, `gain` is NaN.

        Raises:
            SpecError: There is no such method or column, or no other method has a run to compare.
        """
        if metric not in self.columns:
            raise SpecError(f"metric: no column {metric!r}{did_you_mean(metric, self.columns)}")
        methods = self["method"].unique()
        if baseline not in methods:
            raise SpecError(f"baseline: no run of {baseline!r}{did_you_mean(baseline, methods)}")
        key = [*SETTING, "seed"]
        base = self[self["method"] == baseline].set_index(key)[metric].rename("baseline")
        pairs = pd.DataFrame(self[self["method"] != baseline]).join(base, on=key, how="inner")
        if pairs.empty:
            raise SpecError(f"baseline: no other method has a run with the setting and seed of one of {baseline!r}")
        gains = pairs.assign(gain=pairs[metric] - pairs["baseline"]).groupby([*SETTING, "method"], sort=False)["gain"]
        whole = gains.apply(lambda values: values.notna().all())
        table = pd.DataFrame({"pairs": gains.size(), "gain": gains.mean().where(whole)})
        half = stats.t.ppf((1 + LEVEL) / 2, table["pairs"] - 1) * gains.sem()
        table["low"], table["high"] = table["gain"] - half, table["gain"] + half
        table = table.assign(won=gains.apply(lambda values: int((values > 0).sum()))).reset_index()
        # a terminal shows both ends of a row
        return table[["method", "gain", "low", "high", "pairs", "won", *SETTING]]


def study(folder: str | os.PathLike[str]) -> StudyFrame:
    """Read all finished runs of a study.

    Args:
        folder: Folder of the study, such as "results/mine", or its index.csv.

    Returns:
        One row per run. The columns are its ids (`dataset`, `noise`, `partition`, `method`, `seed`) and `label`, the
        accuracies of its headline models in 0..1, `bytes_up`, `bytes_down`, `work`, `epsilon`, and its folder `dir`.
        `last10_mean` is the mean of the last ten evaluations, and `best` is chosen on test data. Each setting that
        differs from its default in any run, such as `noise.rate` or `train.lr`, has a column.

    Raises:
        ArtifactError: A file is missing or damaged.
        TypeError: `folder` is no path.
    """
    expect_type(folder, cast("Any", (str, os.PathLike)), "folder", "pass the path of a study's results")
    listed = [(row, load(row["dir"])) for row in read_runs(folder)]
    specs = [{key: part for key, part in run.spec["spec"].items() if isinstance(part, Mapping)} for _, run in listed]
    named = dict.fromkeys(column for spec in specs for column, _ in flatten_settings(spec))
    rows = []
    for (row, run), spec in zip(listed, specs, strict=True):
        settings = dict(flatten_settings({key: {**_defaults(key, part), **part} for key, part in spec.items()}))
        rows.append(
            {
                **{key: row[key] for key in (*SETTING, "method")},
                "seed": int(row["seed"]),
                "label": row["label"],
                **{key: run.summary["accuracy"].get(key) for key in ACCURACIES},
                **{
                    key: run.summary.get(key) for key in ("valid_accuracy", "bytes_up", "bytes_down", "work", "epsilon")
                },
                "dir": str(row["dir"]),
                **{key: settings.get(key) for key in named},
            }
        )
    return StudyFrame(rows).dropna(axis="columns", how="all")


def _defaults(key: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default settings of one part of a run. What is the user's own is not imported and gets no defaults."""
    if key == "train":
        return with_defaults(Train, {})
    if key == "method":
        return with_defaults(method_class(spec["name"]), {}) if spec["name"] in METHODS else {}
    if key == "dataset":
        return with_defaults(load_source(spec["source"]), {})
    registry: Mapping[str, Any] = NOISES if key == "noise" else PARTITIONS
    return with_defaults(resolve_kind(spec, registry, key), {}) if spec["kind"] in registry else {}
