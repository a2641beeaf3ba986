"""How near the number of labels named wrong was to the number that were, over finished runs (docs/wrong_labels.md).

python -m benchmarks.named results/quick results/feddpcont-cpu …: one line per range of accuracy, as Markdown.
"""

import itertools
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fednoise_core.index import read_runs
from fednoise_core.io import ArtifactError

BANDS = (0.0, 0.3, 0.5, 0.7, 0.85, 1.01)
NEAR = 1.5  # the factor within which a number is near, as in benchmarks.wrong_labels
FEWEST = 0.02  # share of wrong labels below which a factor says little


@dataclass(frozen=True)
class Finding:
    """One run. accuracy: in its last round; ratio: labels named wrong for each that was wrong, nan if it named none,
    or none rightly.
    """

    accuracy: float
    ratio: float
    auroc: float


def findings(roots: Iterable[str | Path]) -> list[Finding]:
    """The runs of these studies, each once, whose clean labels are known, and that have wrong ones."""
    found = []
    for folder in sorted({Path(row["dir"]) for root in roots for row in read_runs(root)}):
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        said, last = summary["diagnostics"], summary["accuracy"]["last"]
        if last is None or said.get("suspects_auroc") is None or said.get("noise_rate", 0) < FEWEST:
            continue
        precision, recall = said.get("suspects_precision"), said.get("suspects_recall")
        found.append(Finding(last, recall / precision if precision else np.nan, said["suspects_auroc"]))
    return found


def table(found: list[Finding]) -> list[str]:
    """Markdown, a row a range of accuracy. A run without a ratio is not near."""
    lines = [
        "| accuracy | runs | AUROC, median | named / wrong, median | 10 % to 90 % of the runs | within 1.5 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for low, high in itertools.pairwise(BANDS):
        inside = [one for one in found if low <= one.accuracy < high]
        ratio = np.array([one.ratio for one in inside if not np.isnan(one.ratio)])
        if not inside:
            continue
        near = np.sum((ratio <= NEAR) & (ratio >= 1 / NEAR)) / len(inside)
        least, half, most = np.quantile(ratio, [0.1, 0.5, 0.9]) if ratio.size else [np.nan] * 3
        words = f"{100 * low:.0f} to {min(100 * high, 100):.0f} %"
        lines += [
            f"| {words} | {len(inside)} | {np.median([one.auroc for one in inside]):.3f} | {half:.2f} | "
            f"{least:.2f} to {most:.2f} | {100 * near:.0f} % |".replace("nan to nan", "–").replace("nan", "–")
        ]
    return lines


def main(roots: list[str]) -> int:
    """Exit status 0: printed; 2: a study has no results, or damaged ones."""
    try:
        print("\n".join(table(findings(roots))))
    except (ArtifactError, OSError) as error:
        print(f"named: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
