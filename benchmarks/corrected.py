"""Whether correcting pays: training on the labels as given, on those corrected by the page's verdicts, and on the clean
ones, with the same seed, so that they differ in the labels alone (docs/wrong_labels.md).

python -m benchmarks.corrected [--data DIR] [--per-site N] [--seeds 0 1 2]; 12 min on one core. DIR holds Fashion-MNIST
as docs/data.md says. Rows that the output file holds already are not made again.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fednoise_core as fn
from benchmarks.corruptions import SCENARIOS, Spoilt, spoilt
from fednoise_core.api.run import Run
from fednoise_core.data import sources
from workflow_scripts.commands import apply_decisions

OUT = Path("benchmarks/results/corrected.json")
# what workflow_scripts.commands.label_study writes into a study, evaluated at the end alone
TRAIN: dict[str, Any] = {"fraction": 1.0, "epochs": 2, "batch": 32, "lr": 0.05, "eval_every": 1000}
ROUNDS, WIDTH = 30, 16
WAYS = ("given", "corrected", "clean")


def compared(
    case: Spoilt, test: tuple[np.ndarray, np.ndarray], seed: int, rounds: int = ROUNDS, clean: float | None = None
) -> dict[str, Any]:
    """Accuracy on clean test images (x uint8 [n, H, W], y int64 [n]) by way of labelling, and what was corrected.

    clean: the accuracy with clean labels, where a federation of the same images, sites and seed has been trained so.
    The engineer is simulated: all verdicts "wrong" are accepted, by the command that a person would use, from the files
    that the run leaves. The second run is then trained on the file that the command wrote.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        mine, truth, right = folder / "mine.npz", folder / "clean.npz", folder / "mine-2.npz"
        _save(mine, case, case.data.y_train, test)
        _save(truth, case, case.clean, test)
        run = _trained(mine, seed, rounds)
        run.save(folder / "run")
        command = ["--accept-all", str(folder / "run/suspects.csv"), "--data", str(mine)]
        if apply_decisions.main([*command, "--out", str(right)]):
            raise RuntimeError("apply_decisions refused the run's own verdicts")
        with np.load(right, allow_pickle=False) as found:
            after = found["given"]
        runs = {"given": run, "corrected": _trained(right, seed, rounds)}
        runs |= {} if clean is not None else {"clean": _trained(truth, seed, rounds)}
    changed = after != case.data.y_train
    return {
        "clean": clean,
        **{way: run.summary["accuracy"]["last"] for way, run in runs.items()},
        "samples": len(after),
        "wrong_before": int(case.wrong.sum()),
        "wrong_after": int((after != case.clean).sum()),
        "changed": int(changed.sum()),
        "changed_rightly": int((changed & (after == case.clean)).sum()),
        "spoilt_by_change": int((changed & ~case.wrong).sum()),
    }


def _save(path: Path, case: Spoilt, labels: np.ndarray, test: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = test
    sites = np.array([f"site {site}" for site in case.site.tolist()])
    np.savez(path, x_train=case.data.x_train, given=labels, client=sites, x_test=x, y_test=y)


def _trained(path: Path, seed: int, rounds: int) -> Run:
    data = fn.dataset({"source": "npz", "path": str(path)})
    labels, owners = fn.inject(data, {"kind": "given"}, seed=0), fn.partition_of(data, {"kind": "natural"}, seed=0)
    train = {**TRAIN, "rounds": rounds, "net": {"name": "small_cnn", "width": WIDTH}}
    return fn.run(data, labels, owners, "fedavg", train, seed=seed)


def _cases(
    x: np.ndarray, y: np.ndarray, per_site: int, scenarios: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[dict[str, Any], Spoilt]]:
    """(what a row is about, its federation), seed after seed."""
    for seed in seeds:
        for name in scenarios:
            kinds = SCENARIOS[name]
            about = {"scenario": name, "seed": seed, "per_site": per_site}
            yield about, spoilt(x, y, per_site * len(kinds), len(kinds), "iid", kinds, seed)


def table(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line a run, then the mean, with what corrected labels gain on given ones, in points."""
    lines = ["| images | scenario | seed | wrong before | after | given | corrected | gain | clean |", "|" + "---|" * 9]
    for row in found:
        before, after = (f"{100 * row[key] / row['samples']:.1f} %" for key in ("wrong_before", "wrong_after"))
        about = f"| {row['samples']:,} | {row['scenario']} | {row['seed']} | {before} | {after} "
        lines.append(about + _accuracies([row]))
    for samples in sorted({row["samples"] for row in found}):
        part = [row for row in found if row["samples"] == samples]
        gains = 100 * np.array([row["corrected"] - row["given"] for row in part])
        spread = f", ± {gains.std(ddof=1):.1f} between runs" if len(gains) > 1 else ""
        lines.append(f"| {samples:,} | all | mean of {len(part)}{spread} | | " + _accuracies(part))
    return "\n".join(lines)


def _accuracies(part: Sequence[dict[str, Any]]) -> str:
    given, corrected, clean = (100 * float(np.mean([row[way] for row in part])) for way in WAYS)
    return f"| {given:.1f} | {corrected:.1f} | {corrected - given:+.1f} | {clean:.1f} |"


def main(argv: list[str] | None = None) -> int:
    """Make the rows that are missing; each goes to benchmarks/results/ as it comes. Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FEDNOISE_DATA", "."), help="folder with Fashion-MNIST")
    parser.add_argument("--per-site", type=int, default=500, help="images of each of the six sites")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="of corruptions.py")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of images, noise and training")
    parser.add_argument("--out", type=Path, default=OUT, help="JSON file to write")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    data = sources.read("fashion_mnist", [args.data])
    x, y, test = data.x_train, data.y_train, (data.x_test, data.y_test)
    found: list[dict[str, Any]] = []
    if args.out.exists():
        found = json.loads(args.out.read_text(encoding="utf-8"))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for about, case in _cases(x, y, args.per_site, args.scenarios, args.seeds):
        if any(about.items() <= row.items() for row in found):
            continue
        same = (row["clean"] for row in found if (row["seed"], row["per_site"]) == (about["seed"], args.per_site))
        found.append({**about, **compared(case, test, about["seed"], clean=next(same, None))})
        print(json.dumps(found[-1]), flush=True)
        args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
