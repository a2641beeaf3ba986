"""A paper's table beside ours: every cell that the paper or the study has, both numbers, and what they say together.

The frame is one row a cell, under the ids of the paper's scale; `layout_papers.py` shows it.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from scipy.stats import spearmanr

from fednoise_core.io import ArtifactError
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.csv_files import at_hand, read_texts
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.noise_rate import noiseless
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.runs.statistics import spread
from fednoise_core.report.tables import claims
from fednoise_core.report.text.footnotes import together

__all__ = [
    "BASELINE",
    "JUDGED",
    "KEYS",
    "LEAST_RANKED",
    "POINTS",
    "VERDICTS",
    "rank_correlation",
    "reproduction",
    "verdict",
]

BASELINE = "fedavg"  # id of the method that gains are over, if the table names no other
POINTS = 2.0  # of %: closer than that is near, whatever the spread
KEYS = ["dataset", "noise", "partition", "method", "member"]
JUDGED = ("within 2 σ", "within 2 points", "apart")
VERDICTS = (
    *JUDGED,
    "diverged",
    "no number",
    "paper unreadable",
    "not in paper",
    "run",
    "not run",
    "not run (data absent)",
)
LEAST_RANKED = 3  # methods: two can only agree or not


def verdict(ours: tuple[float, float], paper: tuple[float, float]) -> str:
    """What two numbers (mean, std in %; std NaN where unknown) say: "within 2 σ", σ² the sum of both variances, where
    both are known; else "within 2 points", or "apart". Equal means within rounding are never apart.
    """
    apart, spread = abs(ours[0] - paper[0]), math.hypot(ours[1], paper[1])  # NaN if one is unknown
    if apart <= 2 * spread:
        return "within 2 σ"
    return "within 2 points" if apart <= POINTS else "apart"


def rank_correlation(ours: Sequence[float], paper: Sequence[float]) -> float:
    """Spearman's ρ of two lists of means, of the places where both have one; NaN for fewer than three of them, or if
    all values of one are equal.
    """
    pairs = [both for both in zip(ours, paper, strict=True) if not any(map(math.isnan, both))]
    if len(pairs) < LEAST_RANKED or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return math.nan
    return float(spearmanr(*zip(*pairs, strict=True)).statistic)


def reproduction(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> pd.DataFrame:
    """Every cell of the study (`cells`) or the paper (`reference`): `paper_*`, `ours_*` in %, `difference`, `verdict`.

    `ours_low` and `ours_high`: the 95 % bootstrap interval of the mean over at least three seeds.

    `*_gain`: points above the `baseline` of the same column; `*_rank`: among the methods of the column that both have;
    `disagrees`: ids of the claims that our numbers contradict in the cell's column.

    At another scale than `paper` there is no difference, and the verdict is `run`. `paper` says of a cell without a
    number why: `unreadable`, or `absent` (the paper has no such cell). Raises ArtifactError for a damaged reference.
    """
    printed, own = _printed(spec), _own(runs, spec)
    known = {**dict.fromkeys(_cells(spec)), **dict.fromkeys(printed)}
    names, parts = _names(spec, known), spec.get("parts", {})
    substitutes = spec.get("dataset_substitutes", {})
    clean = {name for name, one in parts.get("noise", {}).items() if noiseless(one)}
    many = {name: len({key[3] for key in known if key[1] == name}) for name in {key[1] for key in known}}
    noisy = max((count for name, count in many.items() if name not in clean), default=0)
    found = []
    for key in known:  # in the order of the table's lists; what the paper alone has comes last
        dataset, noise, method = key[0], key[1], key[3]
        mine = own.get((substitutes.get(dataset, dataset), *key[1:]), {})
        row = {
            **dict(zip(KEYS, key, strict=True)),
            **dict(zip(("dataset_label", "noise_label", "partition_label"), names(key), strict=True)),
            "method_label": spec.get("labels", {}).get(method, method),
            "marks": mine.get("marks", ""),
            "ceiling": int(noise in clean and many[noise] < noisy),
            "metric": spec.get("metric", "best"),
            "scale": spec.get("scale", "paper"),
            **(printed.get(key) or {"paper_mean": math.nan, "paper_std": math.nan, "paper": "absent", "note": ""}),
            "seeds": mine.get("seeds", 0),
            "ours_mean": mine.get("mean", math.nan),
            "ours_std": mine.get("std", math.nan),
            "ours_low": mine.get("low", math.nan),
            "ours_high": mine.get("high", math.nan),
            "diverged": mine.get("diverged", 0),
            "epsilon": mine.get("epsilon", math.nan),
        }
        found.append({**row, **_judged(row, dataset in spec.get("absent", ()))})
    return _compared(pd.DataFrame(found), spec)


def _compared(frame: pd.DataFrame, spec: Mapping[str, Any]) -> pd.DataFrame:
    """The frame with what is said of its columns: gains, ranks, and claims that disagree."""
    main, columns = frame[frame["ceiling"] == 0], [key for key in KEYS if key != "method"]
    both = main["ours_mean"].notna() & main["paper_mean"].notna()
    base = main[main["method"] == (spec.get("baseline") or BASELINE)].set_index(columns)
    for whose in ("ours", "paper"):
        lowest = base[f"{whose}_mean"].reindex(pd.MultiIndex.from_frame(main[columns])).to_numpy()
        gain = (main[f"{whose}_mean"] - lowest).where(~main["method"].isin(base["method"]))
        rank = main[both].groupby(columns)[f"{whose}_mean"].rank(ascending=False, method="min")
        frame = frame.assign(**{f"{whose}_gain": gain, f"{whose}_rank": rank})
    against: dict[int, list[str]] = {}
    for claim in spec.get("claims", ()):
        for key in (key for key, holds in claims.columns(frame, claim).items() if holds is False):
            wanted = [(name, one) for name, one in zip(columns, key, strict=True) if one or name == "member"]
            chosen = (main[name] == one for name, one in wanted)
            for place in main[functools.reduce(operator.and_, chosen)].index:
                against.setdefault(place, []).append(str(claim.get("id", "")))
    return frame.assign(disagrees=[" ".join(against.get(place, ())) for place in frame.index])


def _judged(row: Mapping[str, Any], absent: bool) -> dict[str, Any]:
    """Difference and verdict of a cell."""
    both = (row["ours_mean"], row["ours_std"]), (row["paper_mean"], row["paper_std"])
    if row["seeds"] == 0:
        return {"difference": math.nan, "verdict": "not run (data absent)" if absent else "not run"}
    if row["diverged"]:
        return {"difference": math.nan, "verdict": "diverged"}
    if math.isnan(row["ours_mean"]):  # runs, but none with a number of this metric
        return {"difference": math.nan, "verdict": "no number"}
    if row["scale"] != "paper":
        return {"difference": math.nan, "verdict": "run"}
    if math.isnan(row["paper_mean"]):
        return {"difference": math.nan, "verdict": "not in paper" if row["paper"] == "absent" else "paper unreadable"}
    return {"difference": both[0][0] - both[1][0], "verdict": verdict(*both)}


def _cells(spec: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The study's cells, with one for each client that has a column, and one for their mean."""
    clients = ["", *map(str, range(spec.get("clients", 0)))]
    return [(*cell, client) for cell in spec.get("cells", ()) for client in clients]


def _printed(spec: Mapping[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """The paper's numbers by cell. A row without a method cannot be placed; the layout tells of it."""
    path, table = spec["reference"]["file"], spec["reference"].get("table")
    rows = read_texts(at_hand(path))
    missing = [name for name in ("table", *KEYS, "mean", "std", "note") if name not in rows.columns]
    if missing:
        raise ArtifactError(f"{path}: has no column {', '.join(missing)}")
    rows = rows[(rows["method"] != "") & ((table is None) | (rows["table"] == str(table)))]
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows.to_dict("records"):
        key = tuple(row[name] for name in KEYS)
        if key in found:
            raise ArtifactError(f"{path}: two rows for {' / '.join(filter(None, key))} in table {row['table']}")
        try:
            mean, std = (float(row[name]) if row[name] else math.nan for name in ("mean", "std"))
        except ValueError as error:
            raise ArtifactError(f"{path}: {' / '.join(filter(None, key))}: {error}") from error
        state = "unreadable" if math.isnan(mean) else "printed"
        found[key] = {"paper_mean": mean, "paper_std": std, "paper": state, "note": row["note"]}
    return found


def _own(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Ours by cell, under the ids of the runs."""
    if not runs:
        return {}
    metric, view = spec.get("metric", "best"), spec.get("view", "headline")
    frame = frames.results(runs, view).assign(value=lambda table: table[metric], member="")
    parts = [frame, *([_by_client(runs, metric, view, frame)] if spec.get("clients") else [])]
    found = {}
    for ids, group in pd.concat(parts).groupby(KEYS, sort=False):
        lost, values = int(group["diverged"].sum()), group["value"].astype(float)
        found[tuple(map(str, ids))] = {
            "seeds": len(group),
            **_spread([math.nan] if lost else values.tolist()),
            "diverged": lost,
            "marks": together(group["marks"]),
            "epsilon": group["epsilon"].iloc[0],
        }
    return found


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {key: value for key, value in spread(values)._asdict().items() if key != "n"}


def _by_client(runs: Sequence[RecordedRun], metric: str, view: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The same columns, a row for every client's own model."""
    told = frames.tidy(runs, "accuracy", view, client=None)
    told = told[(told["client"] >= 0) & (told["round"] > 0)].sort_values("round", kind="stable")
    groups = told.groupby([*frames.IDS, "seed", "client"], sort=False)["value"]
    found = {
        "last": groups.last,
        "best": groups.max,
        "last10_mean": lambda: groups.apply(lambda v: v.iloc[-10:].mean()),
    }
    values = found[metric]().reset_index()
    whole = frame[[*frames.IDS, "seed", "diverged", "marks", "epsilon"]]
    return values.assign(member=values["client"].astype(str)).merge(whole, on=[*frames.IDS, "seed"])


def _names(spec: Mapping[str, Any], known: Iterable[tuple[str, ...]]) -> Any:
    """Cell → the words of its data set, noise and partition."""
    parts, heads = spec.get("parts", {}), spec.get("heads", {})
    settings = dict.fromkeys(Setting(*key[:3]) for key in known)
    chosen = {
        setting: {
            kind: parts.get(kind, {}).get(name, {})
            for kind, name in zip(("dataset", "noise", "partition"), setting, strict=True)
        }
        for setting in settings
    }
    words = Names(chosen.items())
    return lambda key: [heads.get(name, word) for name, word in zip(key[:3], words.of(Setting(*key[:3])), strict=True)]
