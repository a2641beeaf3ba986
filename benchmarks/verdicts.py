"""Recompute every verdict on the papers' claims from the published runs, without the code of the report.

    python -m benchmarks.verdicts [FOLDER …]

FOLDER (default: each folder below docs/results with a claims.csv) has `runs.json.xz` with the accuracies of each run,
and `claims.csv` with a row for each comparison: its runs, the claim's limits, and the paper's own difference. The
differences, intervals and states are calculated again from the accuracies and compared with the table. Their counts are
compared with `docs/results/papers.md`. Exit status 1: something differs.
"""

import csv
import io
import json
import lzma
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

RESULTS = Path("docs/results")
POINTS = 0.001  # tolerance, since the numbers of the table are rounded
Runs = dict[str, dict[str, Any]]


def read_runs(file: Path) -> Runs:
    """Map the last part of a run's folder to its accuracies in % by round and its number of classes."""
    runs = {}
    for address, texts in json.loads(lzma.decompress(file.read_bytes())).items():
        summary = json.loads(texts["summary.json"])
        rows = [row for row in csv.DictReader(io.StringIO(texts["metrics"])) if row["metric"] == "accuracy"]
        curve = [row for row in rows if row["view"] == summary["headline_view"] and row["client"] == "-1"]
        by_round = {int(row["round"]): 100 * float(row["value"]) for row in curve if int(row["round"]) > 0}
        values = [by_round[number] for number in sorted(by_round)]
        runs[address.rpartition("/")[2]] = {"values": values, "classes": summary["classes"]}
    return runs


def take_value(values: list[float], metric: str, what: str) -> float:
    """Return a term of a difference: a run's metric, or its highest mean of ten successive evaluations."""
    if what == "peak":
        size = min(10, len(values))
        return max(float(np.mean(values[start : start + size])) for start in range(len(values) - size + 1))
    return {"best": max(values), "last": values[-1], "last10_mean": float(np.mean(values[-10:]))}[metric]


def find_error(values: list[float], metric: str) -> float:
    """Estimate the variance of a value that comes from the swing between evaluations."""
    if metric == "best":
        return float(np.var(sorted(values)[-10:], ddof=1))
    last = values[-10:]
    bends = [(before - 2 * value + after) ** 2 for before, value, after in zip(last, last[1:], last[2:], strict=False)]
    return sum(bends) / len(bends) / 6 / (1 if metric == "last" else len(last))


def is_at_chance(run: dict[str, Any]) -> bool:
    """Return True if a tenth of its evaluations after the first tenth are within a point of chance."""
    later = run["values"][len(run["values"]) // 10 :]
    return sum(abs(value - 100 / run["classes"]) <= 1 for value in later) >= len(later) / 10


def pool_columns(cells: dict[str, dict[str, dict[int, str]]], runs: Runs, metric: str) -> tuple[float, int]:
    """Pool the variance about method and seed, by least squares on indicators, and count its degrees of freedom."""
    squares, freedom = 0.0, 0
    for column in cells.values():
        methods = {name: of for name, of in column.items() if not any(is_at_chance(runs[run]) for run in of.values())}
        several = [of for of in methods.values() if len(of) > 1]
        seeds = sorted(set.intersection(*(set(of) for of in several))) if several else []
        if len(several) < 2 or len(seeds) < 2:
            continue
        places = [(row, column) for row in range(len(several)) for column in range(len(seeds))]
        values = [take_value(runs[several[row][seeds[place]]]["values"], metric, "end") for row, place in places]
        design = np.zeros((len(places), len(several) + len(seeds)))
        for number, (row, place) in enumerate(places):
            design[number, row] = design[number, len(several) + place] = 1
        residual = np.array(values) - design @ np.linalg.lstsq(design, np.array(values), rcond=None)[0]
        squares, freedom = squares + float(residual @ residual), freedom + (len(several) - 1) * (len(seeds) - 1)
    return (squares / freedom if freedom else 0.0), freedom


def read_terms(text: str) -> list[tuple[int, str, dict[int, str]]]:
    """Read the terms of a difference: weight, "end" or "peak", and the run of each seed."""
    terms = []
    for part in text.split("; "):
        kind, weight, *pairs = part.split()
        terms.append((int(weight), kind, {int(seed): run for seed, run in (word.split("=") for word in pairs)}))
    return terms


def judge_folder(folder: Path) -> tuple[list[str], Counter[str]]:
    """Find the verdicts on the claims of a publication again.

    Returns:
        The differences from its claims.csv, and the number of claims in each state, by the reading of the tables.
    """
    runs = read_runs(folder / "runs.json.xz")
    with (folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    metric = next((row["metric"] for row in rows if row["metric"]), "")
    cells: dict[str, dict[str, dict[int, str]]] = defaultdict(dict)
    for name in sorted(folder.glob("table*.csv")):
        with name.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get("runs_by_seed") and row["ceiling"] == "0" and not row["member"]:
                    column = "/".join(row[key] for key in ("dataset", "noise", "partition"))
                    cells[column][row["method"]] = read_terms(f"end +1 {row['runs_by_seed']}")[0][2]
    variance, freedom = pool_columns(cells, runs, metric)
    claims: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        claims[row["number"], row["reading"]].append(row)
    differs, counts = [], Counter[str]()
    for (number, reading), parts in claims.items():
        name = f"{folder.name}: claim {number}{f' ({reading})' if reading else ''}"
        state = judge_claim(parts, runs, variance, freedom, name, differs)
        if state != parts[0]["state"]:
            differs.append(f"{name}: {state}, and the table says {parts[0]['state']}")
        if not reading:
            counts[state] += 1
    return differs, counts


def judge_claim(
    rows: list[dict[str, str]], runs: Runs, variance: float, freedom: int, name: str, differs: list[str]
) -> str:
    """Return the state of a claim. Differences in its rows are added to `differs`."""
    judged = []
    for row in rows:
        if not row["column"]:
            continue
        low, high = (float(row[key]) for key in ("lowest", "highest"))
        terms = read_terms(row["runs_by_seed"]) if row["runs_by_seed"] else []
        seeds = sorted(terms[0][2]) if terms else []
        contradicted = bool(row["paper"]) and not low < float(row["paper"]) <= high
        fallen = any(is_at_chance(runs[run]) for _, _, of in terms for run in of.values())
        values = [
            sum(weight * take_value(runs[of[seed]]["values"], row["metric"], kind) for weight, kind, of in terms)
            for seed in seeds
        ]
        swing = [sum(find_error(runs[of[seed]]["values"], row["metric"]) for _, _, of in terms) for seed in seeds]
        judged.append((row, low, high, values, swing, len(terms), contradicted, fallen))
    count = sum(bool(values) and not (against or fallen) for *_, values, _, _, against, fallen in judged)
    columns: dict[str, list[str]] = defaultdict(list)
    for row, low, high, values, swing, size, contradicted, fallen in judged:
        verdict = "void" if contradicted or (values and fallen) else "undecided" if values else "not run"
        if values and verdict == "undecided" and freedom:
            observed = float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
            spread = max(size * variance, observed, float(np.mean(swing))) + size / 2
            quantile = float(stats.t.isf(0.05 / 2 / max(1, count), freedom))
            half, mean = quantile * math.sqrt(spread / len(values)), float(np.mean(values))
            for key, value in (("difference", mean), ("low", mean - half), ("high", mean + half)):
                if abs(value - float(row[key])) > POINTS:
                    differs.append(f"{name}: {row['column']}: {row['comparison']}: {key} {value:.4f}, not {row[key]}")
            if mean + half < low or mean - half > high:
                verdict = "disagrees"
            elif mean - half > low and mean + half <= high:
                verdict = "agrees"
        if verdict != row["verdict"]:
            differs.append(f"{name}: {row['column']}: {row['comparison']}: {verdict}, not {row['verdict']}")
        columns[row["column"]].append("contradicted" if contradicted else verdict)
    states = []
    for verdicts in columns.values():
        order = ("contradicted", "disagrees", "not run", "undecided", "void", "agrees")
        first = next(state for state in order if state in verdicts)
        states.append("void" if first == "contradicted" else first)
    counted = [state for state in states if state not in ("void", "not run")]
    yes, no = counted.count("agrees"), counted.count("disagrees")
    if not counted:
        state = "void" if "void" in states and any(values for _, _, _, values, *_ in judged) else "not run"
    elif rows[0]["columns"] == "all":
        state = "disagrees" if no else "agrees" if yes == len(counted) else "undecided"
    else:
        state = "agrees" if 2 * yes > len(counted) else "disagrees" if 2 * no >= len(counted) else "undecided"
    return "void" if rows[0]["set_aside"] and state != "not run" else state


def main(folders: list[str]) -> int:
    """Check the verdicts of the publications and print the differences."""
    chosen = [Path(folder) for folder in folders] or [file.parent for file in sorted(RESULTS.glob("*/claims.csv"))]
    listed = (RESULTS / "papers.md").read_text(encoding="utf-8")
    order = ("agrees", "disagrees", "undecided", "void", "not run")
    wrong = 0
    for folder in chosen:
        differs, counts = judge_folder(folder)
        line = " | ".join(map(str, (counts.total(), *(counts[state] for state in order))))
        if not any(f"({folder.name}/README.md)" in row and row.endswith(f" {line} |") for row in listed.splitlines()):
            differs.append(f"{folder.name}: papers.md has not the counts {line}")
        print(*(differs or [f"{folder.name}: {counts.total()} claims, all as published"]), sep="\n")
        wrong += bool(differs)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
