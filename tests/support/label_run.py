"""The files of a run that judged labels, without training: P(wrong) is made up, everything else is written by the code
that runs use.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fednoise_core as fn
from fednoise_core.data.arrays import Arrays
from fednoise_core.io import write_json
from fednoise_core.label_errors.estimate import SiteLabels
from fednoise_core.label_errors.files import write_sites, write_suspects
from fednoise_core.noise.labels import Labels

NAMES = ("<i>cat</i>", "=1+1", "cow & </script>")  # as text of any kind, and as a spreadsheet would run them
SITES = ("'quoted", "-north", 'St. Mary\'s, "old" <b>house</b>')  # in the order in which owners count


@dataclass(frozen=True)
class LabelRun:
    """folder: mine.npz, the user's own file; arrays.npz, labels.npz; suspects.csv, sites.csv. clean int64 [n]."""

    folder: Path
    arrays: Arrays
    labels: Labels
    clean: np.ndarray
    sites: list[SiteLabels]

    def arguments(self) -> list[str]:
        """Arguments of `fednoise labels-page`."""
        files = {"arrays": "arrays.npz", "labels": "labels.npz", "run": "."}
        return [text for key, file in files.items() for text in (f"--{key}", str(self.folder / file))]


def label_run(folder: Path, n: int = 120, side: int = 8, test: float = 0.1) -> LabelRun:
    """n images of the user's own, three sites, a quarter of the labels wrong, all of which are named."""
    draw = np.random.default_rng(5)
    clean = np.arange(n) % 3
    x = draw.integers(0, 90, (n, side, side), dtype=np.uint8)
    x[np.arange(n), 2 * clean + 1] += 150
    wrong = draw.random(n) < 0.25
    given_labels = np.where(wrong, (clean + 1) % 3, clean)
    owner = np.array(SITES)[draw.integers(0, 3, n)]
    np.savez(folder / "mine.npz", x_train=x, given=given_labels, client=owner, names=np.array(NAMES), note=np.arange(n))
    arrays = fn.dataset({"source": "npz", "path": str(folder / "mine.npz"), "test": {"holdout": test}})
    arrays.save(folder / "arrays.npz")
    labels = fn.inject(arrays, {"kind": "given"}, seed=0)
    labels.save(folder / "labels.npz")
    sites = []
    assert arrays.client is not None
    assert arrays.origin is not None
    for number in range(3):
        rows = np.flatnonzero(arrays.client == number)
        bad = wrong[arrays.origin[rows]]
        p = np.where(bad, 0.55, 0.02) + 0.4 * draw.random(len(rows))
        proposed = np.where(bad, clean[arrays.origin[rows]], (labels.noisy[rows] + 1) % 3)
        sites.append(SiteLabels(number, rows, p, proposed, 0.9 * p, p.sum(), 0.8 * p.sum(), 1.2 * p.sum()))
    write_suspects(folder / "suspects.csv", sites, arrays, labels.noisy, arrays.sites)
    write_sites(folder / "sites.csv", sites, arrays.sites)
    write_json(folder / "summary.json", {"accuracy": {"last": 0.8321}, "test_known": False})
    return LabelRun(folder, arrays, labels, clean, sites)
