"""Systematic label errors of a site, found by permutation tests and described in words.

The tests use data of suspects.csv: given labels, predictions of models, sites, and the order of rows.

Ranges of rows and annotators are compared with the site's other samples. If its labels are permuted within a class, the
probability of so many wrong labels among n is at most exp(-n KL(share, expected share)) (Hoeffding, 1963). Classes are
compared by exact hypergeometric tests with the other classes of the site, and with the same class at other sites, since
models confuse some classes at all sites. The larger p-value is used. All p-values are multiplied by the number of tests
(Bonferroni). Each of five families of tests has a fifth of the level.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import rel_entr
from scipy.stats import binom, hypergeom

LEVEL, FAMILIES = 0.05, 5
SOUGHT = (0.3, 0.5, 0.7, 0.9)  # shares of wrong labels in the ranges that are looked for
MORE, FACTOR = 1.5, 2.0  # by which a share exceeds that of other rows, that of other classes or sites
PAIR, MOST, NEARLY = 0.2, 0.5, 0.8  # shares: of a class that is labelled as one other, of "most", of "nearly all"
STEPS = (1, -1, 2, -2)  # rows by which labels may be shifted
Finding = dict[str, Any]


def find_systematic_errors(suspects: pd.DataFrame, annotator: np.ndarray | None = None) -> list[Finding]:
    """Find wrong labels with a common cause.

    Args:
        suspects: The columns of suspects.csv.
        annotator: Annotator of each label, by row of the data set [n].

    Returns:
        Findings in order of sites. Each has `site`, `kind`, `classes` (pairs of predicted and given class, by name),
        `first` and `last` (sources of the samples at the ends of a range, else ""), the number of wrong or copied
        `samples`, the `chance` (probability to find it by accident), and a `text`.
    """
    if not len(suspects):
        return []
    table = suspects.sort_values(["client", "sample"], kind="stable", ignore_index=True)
    likely = table["proposed"].where(table["verdict"] == "wrong", table["given"])
    table["looks"] = table["predicted"].where(table["predicted"] >= 0, likely) if "predicted" in table else likely
    table["wrong"] = table["looks"] != table["given"]
    table["copied"] = table[[name for name in ("contradicts", "near_copy") if name in table]].any(axis=1)
    table["annotator"] = "" if annotator is None else np.asarray(annotator)[table["sample"]].astype(str)
    names = {number: str(number) for number in table["looks"].tolist()}
    names |= dict(zip(table["given"], table["given_name"].astype(str), strict=True))
    names |= dict(zip(table["proposed"], table["proposed_name"].astype(str), strict=True))
    sizes = table["client"].value_counts()
    tests = {"copies": float((sizes * (sizes + 1) / 2).sum())}
    tests |= {"rows": tests["copies"], "annotator": len(table[["client", "annotator"]].drop_duplicates())}
    findings, parts = [], []
    for client in sizes.sort_index().index.tolist():
        rows = table[table["client"] == client]
        while found := _find_set(rows, tests):
            findings.append((client, _describe_set(rows, names, *found)))
            rows = rows[~found[1]]
        parts.append(rows)
    findings += _find_confusions(pd.concat(parts), names)
    return [finding for _, finding in sorted(findings, key=lambda pair: pair[0])]


def _find_set(rows: pd.DataFrame, tests: Mapping[str, float]) -> tuple[str, np.ndarray, float] | None:
    """Find the least likely range of copies. If there is none, find the least likely range or annotator of errors.

    Returns:
        Its kind, its samples as a mask [n], and the logarithm of the chance.
    """
    copied, wrong, who = (rows[name].to_numpy() for name in ("copied", "wrong", "annotator"))
    by_given, by_look = (rows.groupby(column)["wrong"].transform("mean").to_numpy() for column in ("given", "looks"))
    everywhere, expected = np.full(len(rows), copied.mean()), by_look
    if _is_sorted(rows["given"].to_numpy()):  # in sorted data, labels depend on rows even without errors
        expected = np.maximum(by_look, by_given)
    ranges = [("rows", mask) for mask in _list_ranges(wrong, expected)]
    annotators = [("annotator", who == name) for name in np.unique(who)]
    for marked, likely, sets in (
        (copied, everywhere, [("copies", mask) for mask in _list_ranges(copied, everywhere)]),
        (wrong, expected, ranges + annotators),
    ):
        unlikely = [
            (kind, mask, _bound_chance(marked[mask], likely[mask]) + np.log(FAMILIES * tests[kind]))
            for kind, mask in sets
            if mask.any() and not mask.all() and marked[mask].mean() > MORE * marked[~mask].mean()
        ]
        best = min(unlikely, key=lambda one: one[2], default=None)
        if best is not None and best[2] < np.log(LEVEL):
            return best
    return None


def _is_sorted(given: np.ndarray) -> bool:
    """Return True if neighbours differ in their label less than half as often as in random order."""
    shares = np.unique(given, return_counts=True)[1] / len(given)
    return bool((given[1:] != given[:-1]).sum() < (len(given) - 1) * (1 - (shares**2).sum()) / 2)


def _list_ranges(marked: np.ndarray, expected: np.ndarray) -> list[np.ndarray]:
    """Return the range with the largest likelihood ratio for each share in SOUGHT, as a mask [n]."""
    masks, expected, row = [], np.clip(expected, 0.001, 0.999), np.arange(len(marked))
    for share in SOUGHT:
        more = np.maximum(share, expected)
        score = np.where(marked, np.log(more / expected), np.log((1 - more) / (1 - expected)))
        total = np.concatenate([[0.0], score.cumsum()])
        stop = (total - np.minimum.accumulate(total)).argmax()
        masks.append((row >= total[: stop + 1].argmin()) & (row < stop))
    return masks


def _bound_chance(marked: np.ndarray, expected: np.ndarray) -> float:
    """Logarithm of a bound on the chance of so many marked samples, -n KL(share, expected share)."""
    share, mean = marked.mean(), expected.mean()
    return -len(marked) * float(rel_entr(share, mean) + rel_entr(1 - share, 1 - mean)) if share > mean else 0.0


def _describe_set(
    rows: pd.DataFrame, names: Mapping[int, str], kind: str, mask: np.ndarray, log_chance: float
) -> Finding:
    """Describe the errors of a range of rows, or of an annotator."""
    inside, pairs, words = rows[mask], list[tuple[int, int]](), ""
    n, count = len(inside), int(inside["copied" if kind == "copies" else "wrong"].sum())
    ends = (str(inside["source"].iat[0]), str(inside["source"].iat[-1]))
    text = f"models contradict {count:,} of {n:,} labels"
    if kind == "rows":
        kind, words, pairs = _describe_order(rows, mask)
        text += f" from row {ends[0]} to {ends[1]}"
    elif kind == "annotator":
        text += f" by annotator {inside['annotator'].iat[0]}"
        ends = ("", "")
    if kind == "copies":
        text = f"{count:,} of {n:,} samples from row {ends[0]} to {ends[1]} are copies of others with another label"
    else:
        text += f" (elsewhere {100 * rows[~mask]['wrong'].mean():.0f} %){words}"
    text += ", ".join(f"{names[look]} is labelled {names[label]}" for look, label in pairs)
    return _make_finding(str(rows["site"].iat[0]), kind, names, pairs, count, np.exp(log_chance), text, ends)


def _describe_order(rows: pd.DataFrame, mask: np.ndarray) -> tuple[str, str, list[tuple[int, int]]]:
    """Describe what the wrong labels of a range have in common: kind, words, and pairs of classes."""
    given, looks, marked, label_names = (rows[name].to_numpy() for name in ("given", "looks", "wrong", "given_name"))
    wrong = marked & mask
    labels, counts = np.unique(label_names[mask].astype(str), return_counts=True)
    if (share := counts.max() / counts.sum()) > NEARLY:
        return "constant rows", f". {100 * share:.0f} % are {labels[counts.argmax()]}", []
    for step in STEPS:
        if (np.roll(looks, step)[wrong] == given[wrong]).mean() > MOST:
            rows_away = "row" if abs(step) == 1 else f"{abs(step)} rows"
            return "shifted rows", f". They are those of the {rows_away} {'before' if step > 0 else 'after'}", []
    table = pd.crosstab(looks[wrong], given[wrong])
    if table.to_numpy().max(1).sum() > NEARLY * wrong.sum():
        columns = table.columns.to_numpy()[table.to_numpy().argmax(1)]
        return "permuted rows", ". There ", list(zip(table.index.tolist(), columns.tolist(), strict=True))
    return "wrong rows", "", []


def _find_confusions(rows: pd.DataFrame, names: Mapping[int, str]) -> Iterator[tuple[int, Finding]]:
    """Find classes of a site that are labelled as one other class, or as various other classes."""
    clients, first, site = np.unique(rows["client"].to_numpy(int), return_index=True, return_inverse=True)
    S, K = len(clients), 1 + max(names)
    cells = np.ravel_multi_index((site, rows["looks"].to_numpy(int), rows["given"].to_numpy(int)), (S, K, K))
    counts = np.bincount(cells, minlength=S * K * K).reshape(S, K, K)
    for client, name, here in zip(clients.tolist(), rows["site"].to_numpy(str)[first].tolist(), counts, strict=True):
        others, wrong = counts.sum(0) - here, here * (1 - np.eye(K, dtype=int))
        missing = np.flatnonzero(here.sum(0) == 0).tolist()
        sizes, wrong_sizes = here.sum(1, keepdims=True), wrong.sum(1, keepdims=True)
        many = np.argwhere((wrong > PAIR * sizes) & (wrong > MOST * wrong_sizes)).tolist()
        chances = {(a, b): FAMILIES * S * K * (K - 1) * _test_pair(here, others, a, b) for a, b in many}
        pairs = [pair for pair, chance in chances.items() if chance < LEVEL]
        if pairs:
            kind = "labelled as another class"
            if len(pairs) > 2:
                kind = "permuted classes"
            elif {(b, a) for a, b in pairs} == set(pairs):
                kind = "exchanged classes"
            elif any(here[:, a].sum() == 0 for a, _ in pairs):
                kind = "missing class"
            parts = [
                f"{here[a, b]:,} of {here[a].sum():,} that look like {names[a]} are labelled {names[b]}"
                for a, b in pairs
            ]
            count, chance = sum(here[pair] for pair in pairs), min(chances[pair] for pair in pairs)
            yield client, _make_finding(name, kind, names, pairs, count, chance, ", ".join(parts))
        for pair in pairs:
            here[pair] = 0
        for a in np.flatnonzero(2 * np.diag(here) < here.sum(1)).tolist():
            chance = FAMILIES * S * K * _test_class(here, others, a)
            if chance < LEVEL:
                n, count, b = here[a].sum(), here[a].sum() - here[a, a], int(np.delete(here[a], a).argmax())
                b += b >= a
                kind, text = "random class", "have various other labels"
                if here[a, b] > NEARLY * count:
                    kind = "missing class" if a in missing else "labelled as another class"
                    count, text = here[a, b], f"are labelled {names[b]}"
                pair = (a, a) if kind == "random class" else (a, b)
                text = f"{count:,} of {n:,} that look like {names[a]} {text}"
                yield client, _make_finding(name, kind, names, [pair], count, chance, text)


def _test_pair(here: np.ndarray, others: np.ndarray, a: int, b: int) -> float:
    """P-value for samples of class a labelled b, compared with other wrong labels of the site and with other sites."""
    wrong, count, elsewhere = here - np.diag(np.diag(here)), here[a, b], others[a, b]
    total = wrong.sum() - wrong[b].sum() - wrong[:, a].sum() + wrong[b, a]  # those that could be labelled b, or be a
    p = [_tail(count, total, wrong[a].sum(), wrong[:, b].sum())]
    for n, m in ((here[a].sum(), others[a].sum()), (here[:, b].sum(), others[:, b].sum())):
        p.append(_tail(count, n + m, count + elsewhere, n) if count * m > FACTOR * elsewhere * n else 1.0)
    return max(p)


def _test_class(here: np.ndarray, others: np.ndarray, a: int) -> float:
    """P-value for samples of class a with other labels, compared with other classes here and with other sites."""
    n, m = here[a].sum(), others[a].sum()
    count, elsewhere = n - here[a, a], m - others[a, a]
    p = []
    for more, rest in ((here.sum() - np.trace(here) - count, here.sum() - n), (elsewhere, m)):
        p.append(_tail(count, n + rest, count + more, n) if count * rest > FACTOR * more * n else 1.0)
    # as often as elsewhere, samples that have another label look like class a
    labels = np.delete(here.sum(0), a)
    expected = labels @ np.delete(others[a] / np.maximum(others.sum(0), 1), a)
    p.append(float(binom.sf(count - 1, labels.sum(), expected / labels.sum())) if count > FACTOR * expected else 1.0)
    return max(p)


def _tail(count: int, total: int, marked: int, drawn: int) -> float:
    """Compute the probability that at least `count` of the `drawn` samples are marked."""
    return float(hypergeom.sf(count - 1, total, marked, drawn))


def _make_finding(
    site: str,
    kind: str,
    names: Mapping[int, str],
    pairs: Sequence[tuple[int, int]],
    count: int,
    chance: float,
    text: str,
    ends: tuple[str, str] = ("", ""),
) -> Finding:
    words = "under one in a million" if chance < 1e-6 else f"one in {1 / chance:,.0f}"
    return {
        **{"site": site, "kind": kind, "classes": [[names[look], names[label]] for look, label in pairs]},
        **{"first": ends[0], "last": ends[1], "samples": int(count), "chance": float(chance)},
        "text": f"{site}: {text}. By accident: {words}.",
    }
