"""Parts of a paper's page that a study's page lacks, as plain values.

These are the paper itself, a summary of our numbers, claims with reasons, settings with their sources, deviations,
commands that make single cells again, and the origin of each number. `paper.html` and `docgen/publish.py` show them.
"""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pandas as pd

from workflow_scripts.report.figures.results.common import find_common_time
from workflow_scripts.report.figures.results.gains import compare_gains
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.csv_files import csv_text
from workflow_scripts.report.runs.frames import RUN
from workflow_scripts.report.runs.run import RecordedRun, list_timed
from workflow_scripts.report.runs.statistics import LEVEL
from workflow_scripts.report.tables.claims import DISAGREES, NOT_RUN, VOID, Claim, judge_claims, list_comparisons
from workflow_scripts.report.tables.intervals import PROCESSOR
from workflow_scripts.report.tables.registry import build_table, find_kind, read_table, select_table_runs
from workflow_scripts.report.tables.reproduction_layout import format_ours, format_paper
from workflow_scripts.report.tables.scorecard import JUDGED, KEYS, Score, score_table, states_words
from workflow_scripts.report.tables.setup import is_same_value
from workflow_scripts.report.text.cells import MISSING, format_number, format_signed, in_setting, settings_of

COLUMNS = (
    "table",
    *frames.RUN,
    "accuracy",
    "run",
    "digest",
    "code",
    "device",
    "versions",
    "seconds",
    "command",
)  # of the origins of numbers
LISTED = 500  # most runs in the page's list; with more, only the CSV in the page has them


LEGEND = (
    "“paper”: the paper says so. “code”: published code does. “our choice”: neither says, as far as code could be had."
)
INTERVALS = (
    "A verdict rests on intervals of paired differences (points of %): Student’s t with the degrees of freedom of a "
    "two-way layout of methods and seeds, pooled over the columns run. "
    "The variance of one seed’s difference is the largest of three: the pooled one, that between its own seeds, and "
    "that of the swing between evaluations (the last ten; for the best round the ten highest). "
    f"For the processor {PROCESSOR**2 / 2:g} points² a run are added, as a cell differed by up to {PROCESSOR:.1f} "
    f"points on two kinds, and all comparisons of a claim share the level of {100 * LEVEL:g} % (Bonferroni)."
)


def paper_parts(
    study: Mapping[str, Any],
    runs: Sequence[RecordedRun],
    root: str | Path,
    sizes: Sequence[tuple[Mapping[str, Any], Sequence[RecordedRun]]] = (),
) -> dict[str, Any] | None:
    """The sections of a study that is a paper's.

    Args:
        study: As the page gets it, with completed tables.
        runs: Those of the study.
        root: Folder with the tables' CSVs, tables/<id>.csv.
        sizes: The study at other scales whose rows stand on this page, each with its runs.

    Returns:
        None for a study that is not a paper's (has no `paper`), else its parts by name. Tables are (heads, rows).
        `citation` and `cited`: Title, authors, venue and year of the paper, and these in words.
        `scale` and `scale_words`: Scale of the runs, and a sentence with its reductions.
        `made`: Seeds, hours and number of runs.
        `sentences`: The claims' states, their certainty, and the largest gain.
        `intervals`: The method of the intervals.
        `why`: Claim, and the reason why it disagrees, is undecided or void.
        `readings`: Claims whose state depends on a reading of the paper, with their state in each.
        `ranks`: Title and table of the paper's ranks beside ours, for each table.
        `sizes`, `sizes_words`: Rows of other scales, and a sentence on each of these.
        `comparisons`: The rows of claims.csv (`list_comparisons`).
        `legend`: Meaning of the sources of settings.
        `summary`: A row for each table, and one for all.
        `signs`: How many gains have the paper's sign, or "".
        `claims`: Number, the paper's sentence, its place, state, columns, and the comparison that decides.
        `settings`: The settings with their sources.
        `changes`: Changes of the scale.
        `differs`: Settings for which the paper's own tables have another value.
        `notes`: Sentences on deviations.
        `origin`, `origin_csv` and `origin_rows`: Origin of each number (`trace_origins`), as CSV and as a table.
        `code_rows`: Methods by code hash, device and versions, as a short form of the origins.
        `examples`: The command of the first run of each table.
    """
    if "paper" not in study:
        return None
    paper, scale = study["paper"], str(study.get("scale") or "paper")
    frames = {
        name: read_table(Path(root) / "tables" / f"{name}.csv", spec)
        for name, spec in study["tables"].items()
        if find_kind(spec).of_a_paper
    }
    origins = pd.concat([trace_origins(*shown) for shown in ((study, runs), *sizes)], ignore_index=True)
    tables = study["tables"]
    scores = {name: score_table(frames[name]) for name, spec in tables.items() if spec["kind"] == "reproduction"}
    titles = {name: str(spec["title"] or name) for name, spec in tables.items()}
    setups = {name: frame for name, frame in frames.items() if name not in scores}
    specs = {name: tables[name] for name in scores}
    claims = judge_claims({name: frames[name] for name in specs}, specs)
    codes = origins.groupby(["method", "code", "device", "versions"], sort=False)["run"].nunique()
    gain, signs = _describe_gains(str(study["id"]), frames, specs, titles)
    return {
        "citation": paper["citation"],
        "cited": _cite_paper(paper["citation"]),
        "scale": scale,
        "scale_words": _scale_words(paper, scale),
        "made": _describe_runs(runs),
        "sentences": [
            states_words(claims),
            _describe_certainty(claims, _count_cells(scores, titles)),
            *_count_turns(claims),
            *filter(None, [gain]),
        ],
        "why": _list_reasons(claims, paper["why"]),
        "readings": _readings_table(claims),
        "ranks": [(titles[name], *table) for name in scores if len((table := _rank_table(frames[name]))[1]) > 1],
        "sizes": _sizes_table(sizes, frames, scale),
        "sizes_words": [_scale_words(sized["paper"], sized["scale"]) for sized, _ in sizes],
        "comparisons": list_comparisons(claims).assign(scale=scale),
        "legend": LEGEND,
        "summary": _summary_table(scores, titles, scale),
        "signs": signs,
        "claims": _claims_table(claims),
        "settings": _settings_table(paper["settings"], scale),
        "changes": (
            ["setting", "paper", f"scale {scale}"],
            [[row["name"], row["value"], row["scaled"]] for row in paper["changes"]],
        ),
        "differs": _differences_table(setups, tables),
        "notes": _deviation_notes(paper, scale),
        "intervals": INTERVALS,
        "origin": origins,
        "origin_csv": csv_text(origins),
        "origin_rows": _origins_table(origins),
        "code_rows": (
            ["method", "code hash", "device", "versions", "runs"],
            codes.reset_index().astype(str).to_numpy().tolist(),
        ),
        "examples": list(origins.drop_duplicates("table")["command"]),
    }


def _cite_paper(citation: Mapping[str, Any]) -> str:
    """Authors, venue and year."""
    authors = ", ".join(citation.get("authors", ()))
    details = ", ".join(str(citation[key]) for key in ("venue", "year") if key in citation)
    return f"{authors}. {details}".strip(". ")


def _origins_table(origins: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Make a table of the origin of each number, one row per run. Empty if there are too many rows for a page."""
    heads = ["table", "run", "accuracy, %", "spec digest", "code hash", "device", "versions", "once more"]
    rows = []
    for row in origins.to_dict("records") if len(origins) <= LISTED else ():
        accuracy = "diverged" if pd.isna(row["accuracy"]) else format_number(row["accuracy"], 2)
        cells = [str(row[key]) for key in ("digest", "code", "device", "versions", "command")]
        rows.append([str(row["table"]), "/".join(str(row[key]) for key in RUN), accuracy, *cells])
    return heads, rows


def _scale_words(paper: Mapping[str, Any], scale: str) -> str:
    """Describe the scale in a sentence. Another table has its changes."""
    if scale == "paper":
        return "Scale paper: the paper's own size."
    text = paper["scale_text"] or "Smaller than the paper's experiment."
    return f"Scale {scale}: {text[:1].lower()}{text[1:]}"


def _describe_runs(runs: Sequence[RecordedRun]) -> str:
    """Seeds, hours and runs."""
    seeds = sorted({run.listed.seed for run in runs})
    trained = list({run.listed.dir: run for run in runs}.values())  # two methods with equal settings share a run
    timed = list_timed(trained)
    key, _ = find_common_time(timed)
    word = "CPU hours" if key == "cpu_seconds" else "hours"
    hours = sum(float(run.cost[key]) for run in timed) / 3600
    text = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}; {format_number(hours, 1)} {word}"
    others = len(trained) - len(timed)
    text += f", and {others:,} run{'s' * (others > 1)} on a {'GPU' if timed[0].on_cpu else 'CPU'}" if others else ""
    return f"{text}; {len(trained):,}"


def _describe_gains(
    method: str,
    frames: Mapping[str, pd.DataFrame],
    specs: Mapping[str, Mapping[str, Any]],
    titles: Mapping[str, str],
) -> tuple[str, str]:
    """Describe the largest gain of the paper's own method in the cells that were run, and count gains by their sign.

    If no gain of the method (the id of the study) was run, those of the other methods count.
    """
    parts = [compare_gains(frames[name]).assign(table=name) for name in specs if "ours_gain" in frames[name]]
    gains = pd.concat(parts) if parts else pd.DataFrame()
    if gains.empty:
        return "", ""
    rows = gains[gains["method"] == method] if method in set(gains["method"]) else gains
    row = rows.sort_values("paper_gain", ascending=False, kind="stable").iloc[0]
    spec = specs[row["table"]]
    base = spec["baseline"]
    where = " · ".join(str(row[f"{part}_label"]) for part in KEYS[:3])
    label, table = spec["labels"].get(base, base), titles[row["table"]].split(":")[0]
    cells = gains.drop_duplicates(KEYS[:4])  # tables share cells
    paper, ours = (format_signed(row[key], 1) for key in ("paper_gain", "ours_gain"))
    frame = frames[row["table"]]
    alone = frame[in_setting(frame, tuple(row[KEYS[:3]])) & (frame["method"] == base) & (frame["member"] == "")].iloc[0]
    return (
        f"In the paper {row['method_label']}'s largest gain over {label} in a cell that was run is {paper} points "
        f"({table}, {where}), and ours there is {ours}, with {label} at {alone['ours_mean']:.1f} % where the paper has "
        f"{alone['paper_mean']:.1f}.",
        f"Gains with the paper's sign, in all cells that were run: {cells['same'].sum()} of {len(cells)}.",
    )


def _describe_certainty(claims: Sequence[Claim], cells: str) -> str:
    """Describe the number of seeds behind the verdicts, or why all are void. cells: a clause on cells without runs."""
    ran = [claim for claim in claims if not claim.reading and claim.state != NOT_RUN]
    seeds = [len(one.differences) for claim in ran for one in claim.compared]
    if aside := {claim.set_aside for claim in ran if claim.set_aside}:
        return f"All are void at this scale, because {' and '.join(aside)}; {cells}."
    if not seeds:
        return f"{cells[:1].upper()}{cells[1:]}."
    one, most = seeds.count(1), max(seeds)
    several = f"{one} of {len(seeds)} from one seed and the others from {'2 to ' * (most > 2)}{most}"
    which = "each from one seed" if most == 1 else several
    return f"Verdicts rest on {100 * LEVEL:g} % intervals of paired differences, {which}; {cells}."


def _count_turns(claims: Sequence[Claim]) -> list[str]:
    """Count the claims whose verdict another reading of the paper changes."""
    chosen = {claim.number: claim.state for claim in claims if not claim.reading}
    turns = len({claim.number for claim in claims if claim.state != chosen[claim.number]})
    return [f"Other readings of the paper change {turns} verdict{'s' * (turns > 1)} (see By reading)."] if turns else []


def _count_cells(scores: Mapping[str, Score], titles: Mapping[str, str]) -> str:
    """Count the paper's cells that were not run, and name the tables without any run, as a clause."""
    total, ran = (
        sum(sum(score.cells.values()) for score in scores.values()),
        sum(score.ran for score in scores.values()),
    )
    if ran == total:
        return "every cell of the paper's tables was run"
    none = [titles[name].split(":")[0] for name, score in scores.items() if not score.ran]
    text = f"{total - ran:,} of the {total:,} cells that the paper prints were not run"
    return f"{text}{', among them all of ' * bool(none)}{', '.join(none)}"


def _list_reasons(claims: Sequence[Claim], reasons: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    """List the claims with a reason: the finding about a disagreement (or that there is none), or why it is void."""
    listed = []
    for claim in claims:
        found = reasons.get(claim.table, {}).get(claim.id, "")
        if claim.reading or claim.state == NOT_RUN or claim.set_aside:  # the page's first sentences explain `set_aside`
            continue
        if claim.state == DISAGREES and not found:
            found = "The reason was not found."
        if claim.state == VOID:
            found = f"{found} Void: {'; '.join(claim.reasons)}.".strip()
        if found:
            listed.append((f"{claim.number}, {claim.state}", found))
    return listed


def _readings_table(claims: Sequence[Claim]) -> tuple[list[str], list[list[str]]]:
    """Make a table of the claims that have verdicts for more than one reading."""
    rows = [_claim_row(claim, [claim.reading]) for claim in claims if claim.reading]
    chosen = {claim.number: claim.state for claim in claims if not claim.reading}
    cells = [[row[0], row[1], chosen[int(row[0])], *row[2:]] for row in rows]
    return ["claim", "reading", "as in the tables", "in this reading", "columns", "difference", "n", "interval"], cells


def _rank_table(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Methods × columns of a table: the paper's rank and ours, among the methods that both have."""
    if "ours_rank" not in frame:
        return [], []
    rows = frame[frame["ours_rank"].notna() & (frame["member"] == "")]
    columns, parts = settings_of(rows), KEYS[:3]
    vary = [part for part in parts if rows[part].nunique() > 1] or parts
    heads = [", ".join(str(rows[in_setting(rows, key)][f"{part}_label"].iloc[0]) for part in vary) for key in columns]
    ranks = [f"{paper:.0f} → {ours:.0f}" for paper, ours in zip(rows["paper_rank"], rows["ours_rank"], strict=True)]
    wide = rows.assign(ranks=ranks).pivot(index="method_label", columns=parts, values="ranks")
    wide = wide.reindex(index=rows["method_label"].unique(), columns=columns).fillna(MISSING)
    return ["method", *heads], [[str(method), *cells] for method, *cells in wide.itertuples(name=None)]


def _sizes_table(
    sizes: Sequence[tuple[Mapping[str, Any], Sequence[RecordedRun]]], frames: Mapping[str, pd.DataFrame], scale: str
) -> tuple[list[str], list[list[str]]]:
    """Make a table of the cells that were run at other scales, beside the same cells at this scale and in the paper."""
    rows = dict[tuple[str, ...], list[str]]()  # a cell that two tables share is shown once, with the paper's number
    for study, runs in sizes:
        for name, spec in study["tables"].items():
            if spec["kind"] != "reproduction":
                continue
            table = build_table([run.listed for run in runs], spec)
            for (_, row), (_, beside) in zip(table.iterrows(), frames[name].iterrows(), strict=True):
                where, digits = " · ".join(str(row[f"{part}_label"]) for part in KEYS[:3]), spec["digits"]
                key = (study["scale"], where, row["method_label"])
                printed = rows.get(key, [MISSING])[-1]
                if row["seeds"] and not row["member"] and printed == MISSING:
                    rows[key] = [format_ours(row, digits), format_ours(beside, digits), format_paper(row, digits)]
    heads = ["scale", "data, noise, clients", "method", "accuracy", f"at scale {scale}", "paper"]
    return heads, [[*key, *numbers] for key, numbers in rows.items()]


def _summary_table(
    scores: Mapping[str, Score], titles: Mapping[str, str], scale: str
) -> tuple[list[str], list[list[str]]]:
    """Make the table of counts by paper's table. It has verdicts only at the paper's scale."""
    at_paper = scale == "paper"
    middle = ["run", *JUDGED, "other"] if at_paper else ["run"]
    heads = ["table", "cells", *middle, "not run", "Spearman’s ρ"]
    rows = [_summary_row(titles[name], score, at_paper) for name, score in scores.items()]
    if len(scores) > 1:
        rows.append(_summary_row("all", reduce(add, scores.values()), at_paper))
    return heads, rows


def _summary_row(title: str, score: Score, at_paper: bool) -> list[str]:
    total, ran, judged = sum(score.cells.values()), score.ran, [score.cells[name] for name in JUDGED]
    middle = [ran, *judged, ran - sum(judged)] if at_paper else [ran]
    return [title, *map("{:,}".format, (total, *middle, total - ran)), score.ranks_words()]


def _claims_table(claims: Sequence[Claim]) -> tuple[list[str], list[list[str]]]:
    """Every claim, those that were not run, too."""
    rows = [_claim_row(claim, [claim.says, claim.place]) for claim in claims if not claim.reading]
    return ["no.", "the paper’s sentence", "where", "verdict", "columns", "difference", "n", "interval"], rows


def _claim_row(claim: Claim, words: Sequence[str]) -> list[str]:
    """Return number, words, state, columns, and the comparison that decides the state, in points."""
    one, columns = claim.decisive, claim.unjudged or claim.counted
    head = [str(claim.number), *words, MISSING if claim.unjudged else claim.state, columns]
    if one is None or claim.state == NOT_RUN:
        return [*head, MISSING, MISSING, MISSING]
    low, high = (format_signed(end, 1) if math.isfinite(end) else "" for end in one.interval)
    interval = f"{low} to {high}" if low and high else "none"
    several = claim.comparisons.items() if len(claim.comparisons) > 1 else ()
    where = "".join(f" ({column})" for column, parts in several if one in parts)
    return [*head, f"{one.words}{where}: {format_signed(one.mean, 1)}", str(len(one.differences)), interval]


def _settings_table(rows: Sequence[Mapping[str, str]], scale: str) -> tuple[list[str], list[list[str]]]:
    heads = ["of", "setting", "value", "source", "note"]
    lines = [[row["part"], row["name"], row["value"], row["says"] or MISSING, row["note"]] for row in rows]
    if scale == "paper":
        return heads, lines
    values = [row["scaled"] or "the same" for row in rows]
    return [*heads[:3], f"at scale {scale}", *heads[3:]], [
        [*cells[:3], value, *cells[3:]] for cells, value in zip(lines, values, strict=True)
    ]


def _differences_table(
    frames: Mapping[str, pd.DataFrame], specs: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    """List the settings that a table of the paper names with another value than this study."""
    rows = []
    for name, frame in frames.items():
        heads = specs[name]["heads"]
        for row in frame.to_dict("records"):
            if not is_same_value(row["paper"], row["ours"]):
                rows.append(
                    [name, row["parameter"], heads.get(row["column"], row["column"]), row["paper"], row["ours"]]
                )
    return ["table", "setting", "of", "paper", "here"], rows


def _deviation_notes(paper: Mapping[str, Any], scale: str) -> list[str]:
    notes = []
    if paper["absent"]:
        notes.append(f"Not here, as only the user can supply it: {', '.join(paper['absent'])}. Its cells are not run.")
    who = Counter(part for row in paper["settings"] for part in row["says"].split(", ") if part)
    if who["our choice"]:
        notes.append(
            f"{who['our choice']} settings are our choice, as neither the paper nor code that could be had says them: "
            "they are marked so in the table of settings, with what speaks for them."
        )
    if scale != "paper":
        notes.append(
            f"Scale {scale} is not the paper's, in all that the table of changes lists: ranks, gains and claims are "
            "compared, single numbers are not."
        )
    pages = ", ".join(f"docs/methods/{name}.md" for name in paper["methods"])
    notes.append(f"Where an algorithm differs from its paper or from published code, its page says so: {pages}.")
    return notes


def trace_origins(study: Mapping[str, Any], runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """Make one row per table and run in it, with everything that is needed to make the number again.

    The row has the run's ids, its accuracy in the table (in %, NaN if it diverged), its folder, digest of its spec,
    code hash, device, versions, seconds, and the command.

    Args:
        study: As the page gets it, with completed tables; only its reproduction tables have rows.
        runs: Those of the study.
    """
    rows = []
    by_listed = {run.listed: run for run in runs}
    for name, spec in study["tables"].items():
        if spec["kind"] != "reproduction":
            continue
        table_runs = [by_listed[run_listed] for run_listed in select_table_runs(by_listed, spec)]
        metric = spec["metric"]
        values = frames.tabulate_results(table_runs)[metric] if table_runs else []
        for run, value in zip(table_runs, values, strict=True):
            listed, versions = run.listed, run.cost.get("versions", {})
            rows.append(
                {
                    "table": name,
                    **{key: getattr(listed, key) for key in frames.RUN},
                    "accuracy": value,
                    "run": f"{listed.folder}/spec.json",
                    "digest": run.summary["spec_digest"],
                    "code": str(run.record.get("code", "unknown")),
                    "device": str(run.cost.get("device", "unknown")),
                    "versions": ", ".join(f"{key} {value}" for key, value in sorted(versions.items())),
                    "seconds": float(run.cost["seconds"]),
                    "command": _cell_command(study, name, spec, run),
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def _cell_command(study: Mapping[str, Any], name: str, spec: Mapping[str, Any], run: RecordedRun) -> str:
    """Return the shell command that trains the run of a table again, in the paper's ids.

    It names data set and partition only if several cells have the same method and noise.
    """
    listed = run.listed
    stands_for = [paper for paper, used in spec["dataset_substitutes"].items() if used == listed.dataset]
    cells = [cell for cell in spec["cells"] if (cell[1], cell[3]) == (listed.noise, listed.method)]
    matching = [cell for cell in cells if cell[0] in (stands_for or [listed.dataset]) and cell[2] == listed.partition]
    dataset = matching[0][0] if matching else listed.dataset
    options = {
        "paper": study["id"],
        "table": name.removeprefix("table"),
        "method": listed.method,
        "noise": listed.noise,
        **({"dataset": dataset} if len({cell[0] for cell in cells}) > 1 else {}),
        **({"partition": listed.partition} if len({cell[2] for cell in cells}) > 1 else {}),
        "seed": str(listed.seed),
        **({"scale": study["scale"]} if study.get("scale", "paper") != "paper" else {}),
    }
    return " ".join(["fednoise cell", *(f"--{key} {shlex.quote(value)}" for key, value in options.items())])
