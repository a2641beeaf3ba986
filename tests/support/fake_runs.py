"""Run folders in the documented format, with invented smooth curves, to test the report without training."""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fednoise_core.io import json_digest, save_npz, write_json
from fednoise_core.methods import METHODS as REGISTERED
from fednoise_core.methods import method_class
from fednoise_core.rng import stream
from workflow_scripts.provenance.checksums import write_sums

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg", "label": "FedAvg"},
    "sce": {"name": "sce", "label": "SCE", "alpha": 0.1, "beta": 1.0},
    "scaffold": {"name": "scaffold", "label": "SCAFFOLD"},
    "coteaching-oracle": {"name": "coteaching", "label": "Co-teaching", "forget_rate": 0.4, "oracle": True},
    "coteaching-20": {"name": "coteaching", "label": "Co-teaching, rate 0.2", "forget_rate": 0.2},
    "feddpcont": {"name": "feddpcont", "label": "FedDPCont", "keep": 0.2},
    "fedcorr": {"name": "fedcorr", "label": "FedCorr"},
    "fedmd": {"name": "fedmd", "label": "FedMD"},
    "local": {"name": "local", "label": "Local only"},
}
SWEPT: dict[str, dict[str, Any]] = {
    f"fedprox@mu={mu}": {"name": "fedprox", "label": f"FedProx, mu {mu}", "mu": mu} for mu in (0.01, 0.1)
}
STOPPED: dict[str, dict[str, Any]] = {
    "fedefc": {"name": "fedefc", "label": "FedEFC"}
}  # two phases, the first of which is watched
NOISES: dict[str, dict[str, Any]] = {
    "clean": {"kind": "none"},
    "sym40": {"kind": "symmetric", "rate": 0.4},
    "random20": {"kind": "random", "rate": 0.2},
    "random40": {"kind": "random", "rate": 0.4},
    "as-given": {"kind": "given"},
}
PARTITIONS: dict[str, dict[str, Any]] = {
    "openset-uniform": {"kind": "openset", "mode": "uniform", "q": 0.5, "clients": 20},
    "openset-nonuniform": {"kind": "openset", "mode": "nonuniform", "q": 0.5, "clients": 20},
    "iid": {"kind": "iid", "clients": 20},
}
GRID = [
    {"noises": ["sym40"], "partitions": ["openset-uniform", "iid"], "methods": list(METHODS)},
    {"noises": ["random20", "random40"], "partitions": ["openset-nonuniform"], "methods": list(METHODS)},
    {"noises": ["clean"], "partitions": list(PARTITIONS), "methods": ["fedavg"]},
]
FINAL_ACCURACY = {
    "fedavg": 0.93,
    "sce": 0.95,
    "scaffold": 0.92,
    "coteaching-oracle": 0.965,
    "coteaching-20": 0.945,
    "feddpcont": 0.955,
    "fedcorr": 0.96,
    "fedmd": 0.90,
    "local": 0.55,
    **dict.fromkeys(SWEPT, 0.93),
}


def write_arrays(
    path: Path,
    *,
    classes: int = 10,
    n: int = 1200,
    names: Sequence[str] | None = None,
    clean_known: bool = True,
) -> np.ndarray:
    """Write an arrays artifact of blurry class patterns, uint8 [n, 8, 8]. Returns the labels y_train."""
    rng = stream(7, "fake arrays")
    base = rng.random((classes, 8, 8)) ** 3
    y = np.sort(rng.integers(0, classes, n))
    x = (255 * np.clip(base[y] + 0.15 * rng.normal(size=(n, 8, 8)), 0, 1)).astype(np.uint8)
    text = np.array(list(names) if names else [str(k) for k in range(classes)])
    save_npz(
        path,
        {"x_train": x, "y_train": y, "x_test": x[:50], "y_test": y[:50], "names": text},
        {
            "artifact": "arrays",
            "dataset": {"source": "digits"},
            "classes": classes,
            "clean_known": clean_known,
            "mean": [0.3],
            "std": [0.3],
            "source_sha256": {"fake": "0" * 64},
        },
    )
    return y


def write_labels(
    path: Path, clean: np.ndarray, noise: dict[str, Any], *, classes: int = 10, seed: int = 0, clean_known: bool = True
) -> np.ndarray:
    """Write a labels artifact with symmetric flips at the noise's rate. Returns the noisy labels."""
    rng, rate = stream(seed, "fake noise"), float(noise.get("rate", 0))
    flip = rng.random(len(clean)) < rate
    noisy = np.where(flip, (clean + rng.integers(1, classes, len(clean))) % classes, clean)
    nominal = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(nominal, 1 - rate)
    realised = np.zeros((classes, classes))
    np.add.at(realised, (clean, noisy), 1)
    with np.errstate(invalid="ignore"):
        realised /= realised.sum(1, keepdims=True)
    arrays = {"noisy": noisy, "rate": np.array(np.mean(noisy != clean) if clean_known else math.nan)}
    if clean_known:
        arrays |= {"clean": clean, "T_nominal": nominal, "T_realised": realised}
    save_npz(
        path,
        arrays,
        {
            "artifact": "labels",
            "noise": noise,
            "seed": seed,
            "nominal_rate": rate if clean_known else None,
            "classes": classes,
        },
    )
    return noisy


def write_partition(path: Path, labels: np.ndarray, partition: dict[str, Any], *, seed: int = 0) -> None:
    """Write a partition artifact: iid, or with about half of the classes missing at each client."""
    clients, classes = int(partition["clients"]), int(labels.max()) + 1
    rng = stream(seed, "fake partition")
    allowed = rng.random((clients, classes)) < (1.0 if partition["kind"] == "iid" else 0.5)
    allowed[np.arange(classes) % clients, np.arange(classes)] = True
    owner = np.array([rng.choice(np.flatnonzero(allowed[:, label])) for label in labels])
    index = np.concatenate([np.flatnonzero(owner == c) for c in range(clients)])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=clients))])
    save_npz(
        path,
        {"index": index, "offsets": offsets, "valid": np.zeros(len(index), bool)},
        {
            "artifact": "partition",
            "partition": partition,
            "seed": seed,
            "clients": clients,
            "labels": "noisy",
            "notes": {"samples": len(labels), "overlap": False},
        },
    )


def curve(method: str, noise: dict[str, Any], setting: tuple[str, str, str], seed: int, rounds: int) -> np.ndarray:
    """Accuracy after each round, [rounds + 1], rising from chance; robust methods lose less to noise."""
    rng = stream(seed, "fake curve", method, *setting)
    rate = float(noise.get("rate", 0))
    top = FINAL_ACCURACY.get(method, 0.9) - rate * (0.5 - 0.4 * (FINAL_ACCURACY.get(method, 0.9) - 0.9) / 0.065) * 0.5
    steps = np.arange(rounds + 1)
    rise = 1 - np.exp(-steps / (rounds * (0.12 + 0.1 * rng.random())))
    wobble = rng.normal(0, 0.012, rounds + 1) * (steps > 0)
    return np.clip(0.1 + (top - 0.1) * rise + wobble, 0, 1)


def confusion(accuracy: float, classes: int, rng: np.random.Generator) -> str:
    """confusion.csv of a model that is right on about `accuracy` of the images of each class."""
    head = ["class", "name", *(f"predicted_{k}" for k in range(classes))]
    rows = []
    for k in range(classes):
        p = rng.dirichlet(np.full(classes, 0.3)) * (1 - accuracy)
        p[k] += accuracy
        rows.append([k, f"class {k}", *rng.multinomial(100, p / p.sum())])
    return "".join(",".join(map(str, row)) + "\n" for row in [head, *rows])


def write_run(
    folder: Path,
    run: dict[str, Any],
    spec: dict[str, Any],
    *,
    rounds: int,
    clean_known: bool = True,
    test_known: bool = True,
) -> None:
    """Write a run folder with all its files but the model."""
    folder.mkdir(parents=True, exist_ok=True)
    method, seed = run["method"], run["seed"]
    values = curve(method, spec["noise"], (run["dataset"], run["noise"], run["partition"]), seed, rounds)
    view = {"fedmd": "personal", "local": "personal", "coteaching": "mean"}.get(spec["method"]["name"], "global")
    traffic = {"fedmd": 10_000, "local": 0, "scaffold": 800_000}.get(spec["method"]["name"], 400_000)
    rng = stream(seed, "fake classes", method)
    work = np.arange(rounds + 1) * (1.4 if method == "fedcorr" else 1.0)
    rows = []
    for t, value in enumerate(values):
        cells = {"accuracy": value, "loss": -math.log(max(value, 1e-3))}
        cells |= {f"accuracy_class_{k}": float(np.clip(value + rng.normal(0, 0.05), 0, 1)) for k in range(10)}
        rows += [(t, work[t], "main", view, -1, name, cell) for name, cell in cells.items()]
        if view == "personal":
            each = value + (np.arange(4) - 1.5) / 100  # of four clients, whose mean is the view's accuracy
            rows += [(t, work[t], "main", view, client, "accuracy", cell) for client, cell in enumerate(each)]
        sent = {"bytes_up": traffic, "bytes_down": traffic, "clients": 5} if t else {}
        if t == 0 and method == "feddpcont":
            sent = {"bytes_up": 1200, "bytes_down": 80}  # the private labels, once
        if method in STOPPED and 0 < t <= rounds // 2:
            sent = {**sent, "watched_accuracy": 0.9 * value}
        rows += [(t, work[t], "main", "", -1, name, cell) for name, cell in sent.items()]
    frame = pd.DataFrame(rows, columns=["round", "work", "phase", "view", "client", "metric", "value"])
    frame.astype({"round": "int32", "client": "int32", "value": "float64"}).to_parquet(folder / "metrics.parquet")
    truth = _diagnostics(spec, method, seed) if clean_known else dict.fromkeys(_diagnostics(spec, method, seed))
    pd.DataFrame(
        [(rounds, -1, name, math.nan if value is None else value) for name, value in truth.items()]
        + [(t, -1, "T_cosine", 1 - 0.5 / t) for t in range(1, rounds + 1) if method in STOPPED],
        columns=["round", "client", "metric", "value"],
    ).to_parquet(folder / "diagnostics.parquet")
    scores = {"best": values[1:].max(), "last": values[-1], "last10_mean": values[1:][-10:].mean(), "round0": values[0]}
    scores = {key: float(value) for key, value in scores.items()}
    key = json_digest(spec)
    write_json(
        folder / "spec.json",
        {
            "spec": spec,
            "code": json_digest("code", spec["method"]["name"]),
            "inputs": {"arrays": "a" * 64, "labels": "b" * 64},
            "digest": json_digest("run", key),
        },
    )
    write_json(
        folder / "summary.json",
        {
            "run": run,
            "method_label": spec["method"].get("label", method),
            "oracle_rate": method == "coteaching-oracle",
            "as_told": method != "coteaching-oracle"
            and spec["method"].get("forget_rate") == spec["noise"].get("rate", 0),
            "spec_digest": key,
            "rounds": rounds,
            "work": float(work[-1]),
            "headline_view": view,
            "clean_known": clean_known,
            "test_known": test_known,
            "views": {view: {**scores, "best_round": int(values[1:].argmax()) + 1}},
            "accuracy": scores,
            "bytes_up": traffic * rounds,
            "bytes_down": traffic * rounds,
            "epsilon": 0.81 if method == "feddpcont" else None,
            "parameters": [4240, 9930] if method == "fedmd" else [9930],
            "clients": 20,
            "samples": 1200,
            "classes": 10,
            "diagnostics": truth,
            "phases": [
                {"name": "watch", "first": 1, "last": rounds // 2},
                {"name": "corrected", "first": rounds // 2 + 1, "last": rounds},
            ][: 2 if method in STOPPED else 1],
            "notes": {},
        },
    )
    seconds = 5 + len(method) * 0.3 + seed * 0.2
    write_json(
        folder / "cost.json",
        {
            "seconds": seconds,
            "seconds_per_round": seconds / rounds,
            "cpu_seconds": seconds * 0.97,
            "peak_memory_mb": 310.5,
            "device": "cpu",
            "executor": "sequential",
            "versions": {"python": "3.11.9", "torch": "2.14.1", "numpy": "2.3.0"},
            "resumed": 0,
        },
    )
    (folder / "confusion.csv").write_text(confusion(values[-1], 10, stream(seed, "fake confusion", method)))
    (folder / "suspects.csv").write_text("sample,client,given,p_wrong,proposed\n", encoding="utf-8")


def diverge(folder: Path, first: int, *, dropped: int = 0, best: bool = True) -> None:
    """Edit a run so that its outputs are not finite from evaluation `first` on.

    Accuracies and losses are then NaN, and null in the summary. `best` may be that of the rounds before. The keys
    `diverged` and `dropped_updates` are set.
    """
    frame = pd.read_parquet(folder / "metrics.parquet")
    scored = frame["metric"].str.startswith(("accuracy", "loss"))
    frame.loc[scored & (frame["round"] >= first), "value"] = math.nan
    frame.to_parquet(folder / "metrics.parquet")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    view = summary["headline_view"]
    curve = frame[(frame["metric"] == "accuracy") & (frame["view"] == view) & (frame["client"] == -1)]
    before = curve[curve["round"] > 0]["value"].max() if best else math.nan
    scores = {"best": None if math.isnan(before) else float(before), "last": None, "last10_mean": None}
    scores["round0"] = summary["accuracy"]["round0"] if first else None
    summary |= {"accuracy": scores, "views": {view: scores}, "diverged": True, "dropped_updates": dropped}
    write_json(folder / "summary.json", summary)


def _diagnostics(spec: dict[str, Any], method: str, seed: int) -> dict[str, float | None]:
    rng = stream(seed, "fake truth", method)
    values: dict[str, float | None] = {"noise_rate": float(spec["noise"].get("rate", 0)) + 0.004}
    if method in ("fedcorr", "coteaching-oracle", "coteaching-20"):
        values |= {"suspects_precision": 0.7 + 0.2 * rng.random(), "suspects_recall": 0.6 + 0.3 * rng.random()}
    if method == "fedcorr":
        values |= {"noisy_client_auroc": 0.9 + 0.1 * rng.random(), "target_noise_rate": 0.11}
    if method == "feddpcont":
        values |= {"prior_error": 0.05 + 0.05 * rng.random()}
    return values


def _family_of(name: str) -> dict[str, str]:
    return {"name": name, "family": method_class(name).family if name in REGISTERED else "server-side"}


def write_study(
    root: Path,
    *,
    study: str = "quick",
    datasets: Sequence[str] = ("digits",),
    grid: Sequence[dict] | None = None,
    seeds: Sequence[int] = (0, 1),
    rounds: int = 40,
    clean_known: bool = True,
    test_known: bool = True,
    eval_every: int = 1,
) -> dict[str, Any]:
    """Write all run folders and artifacts of a study below `root`, and runs.json. Returns the study's settings."""
    blocks, listed = list(grid or GRID), []
    train = {"rounds": rounds, "fraction": 0.25, "epochs": 5, "batch": 32, "lr": 0.05, "net": "small_cnn"}
    train["eval_every"] = eval_every  # only in the settings: every round is evaluated
    for dataset in datasets:
        arrays = root / "raw" / f"{dataset}.npz"
        clean = write_arrays(arrays, clean_known=clean_known)
        settings = (
            (noise, partition, seed, block["methods"])
            for block in blocks
            for noise, partition, seed in itertools.product(block["noises"], block["partitions"], seeds)
        )
        for noise, partition, seed, methods in settings:
            ids = {"dataset": dataset, "noise": noise, "partition": partition}
            place = f"{dataset}/{noise}/{partition}"
            labels = root / "labels" / dataset / noise / "any" / f"seed{seed}.npz"
            split = root / "partitions" / place / f"seed{seed}.npz"
            noisy = write_labels(labels, clean, NOISES[noise], seed=seed, clean_known=clean_known)
            write_partition(split, noisy, PARTITIONS[partition], seed=seed)
            for method in methods:
                row = {**ids, "method": method, "seed": seed}
                spec = {
                    "study": study,
                    "dataset": {"source": "digits"},
                    "noise": NOISES[noise],
                    "partition": PARTITIONS[partition],
                    "method": (METHODS | SWEPT | STOPPED)[method],
                    "train": train,
                    "seed": seed,
                }
                run, folder = {"study": study, **row}, root / "runs" / place / method / f"seed{seed}"
                write_run(folder, run, spec, rounds=rounds, clean_known=clean_known, test_known=test_known)
                files = {"dir": folder, "labels": labels, "partition_file": split, "arrays": arrays}
                paths = {key: str(path) for key, path in files.items()}
                listed.append({**row, **_family_of(spec["method"]["name"]), **paths})
    order = {name: place for place, name in enumerate(METHODS | SWEPT | STOPPED)}
    listed.sort(key=lambda row: order[row["method"]])
    (root / "runs.json").write_text(json.dumps(listed), encoding="utf-8")
    return {
        "id": study,
        "title": "Quick: eight methods on hand-written digits",
        "scale": "paper",
        "text": "A federation of 20 clients on real hand-written digits.\n\nEvery number is measured, none is tuned.",
        "datasets": {dataset: {"source": "digits"} for dataset in datasets},
        "noises": NOISES,
        "partitions": PARTITIONS,
        "methods": METHODS,
        "train": train,
        "seeds": list(seeds),
        "grid": blocks,
        "tables": {
            "accuracy": {"kind": "accuracy", "metric": "best", "title": "Accuracy"},
            "diagnostics": {"kind": "diagnostics"},
            "cost": {"kind": "cost"},
        },
        "figures": {
            "curves": {"kind": "curves"},
            "bytes": {"kind": "bytes"},
            "cost": {"kind": "cost"},
            "rate": {"kind": "rate"},
            "histogram": {"kind": "histogram", "noises": blocks[0]["noises"][:1]},
            "transition": {"kind": "transition", "noises": ["sym40", "random20"]},
        },
    }


def shown_files(root: Path) -> str:
    """The paths of a study's tables and figures as JSON, the argument of its page."""
    files = [file for folder in ("tables", "figures") for file in root.glob(f"{folder}/*")]
    return json.dumps({f"{file.parent.name}/{file.name}": str(file) for file in files})


def finish_run(study: str, run: Any, rounds: int = 12) -> None:
    """Write a planned run's folder with its checksums, as if it had been trained."""
    ids = {key: getattr(run, key) for key in ("dataset", "noise", "partition", "method", "seed")}
    write_run(Path(run.folder), {"study": study, **ids}, dict(run.spec), rounds=rounds)
    write_sums(run.folder)
