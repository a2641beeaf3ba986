"""sites.csv of run folders, which only pages read: a method's verdicts about its clients."""

import json
from pathlib import Path

from fednoise_core.data.partition import Partition
from fednoise_core.noise.labels import Labels
from fednoise_core.rng import stream

JUDGES = ("fedcorr", "coteaching-oracle", "coteaching-20")


def write_sites(root: Path) -> None:
    """sites.csv for all runs of runs.json: of the methods that judge labels, near the truth."""
    for run in json.loads((root / "runs.json").read_text(encoding="utf-8")):
        folder, rng = Path(run["dir"]), stream(run["seed"], "extras", run["method"])
        head = "client,site,samples,wrong,wrong_low,wrong_high,share,verdict_wrong,verdict_check,estimated\n"
        if run["method"] in JUDGES:
            labels, split = Labels.load(Path(run["labels"])), Partition.load(Path(run["partition_file"]))
            for client in range(split.clients):
                rows = split.index[split.offsets[client] : split.offsets[client + 1]]
                truth = 0.3 * len(rows) if labels.wrong is None else float(labels.wrong[rows].sum())
                wrong = min(len(rows), max(0.0, truth + rng.normal(0, 2)))
                low, high = max(0.0, wrong - 4), min(len(rows), wrong + 4)
                numbers = f"{wrong:.1f},{low:.1f},{high:.1f},{wrong / max(1, len(rows)):.4f},{wrong:.0f},2,1"
                head += f"{client},{client},{len(rows)},{numbers}\n"
        (folder / "sites.csv").write_text(head, encoding="utf-8")
