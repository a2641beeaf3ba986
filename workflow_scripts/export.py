"""Take a trained model out of a run's folder: model, settings, a card that says what it is, and a five-line example.

    make export RUN=results/…/seed0 OUT=folder

The folder needs the library alone (`pip install` of this project without extras), not the workflow.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError, atomic, sha256_file
from fednoise_core.model import read_models
from fednoise_core.report.texts import markdown_text
from fednoise_core.session import LoadedRun, load
from workflow_scripts.codehash import PACKAGES, closure
from workflow_scripts.step import run
from workflow_scripts.stepcode import ROOT, own_file

__all__ = ["main"]

EXAMPLE = '''\
from pathlib import Path
import numpy as np, fednoise_core as fn
run = fn.load(Path(__file__).parent)
images = np.random.default_rng(0).integers(0, 256, {shape}, dtype=np.uint8)  # yours: 0..255
print(run.predict(images{client}).named)
'''


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, type=Path, help="folder of a finished run")
    parser.add_argument("--out", type=Path, help="folder to write; default: export/METHOD-seedN")
    args = parser.parse_args(argv)

    def work() -> str:
        found = load(args.run)
        who = found.summary["run"]
        out = args.out or Path("export") / f"{who['method'].replace(':', '.')}-seed{who['seed']}"
        if out.is_file() or (out.is_dir() and out.resolve() == args.run.resolve()):
            raise SpecError(f"--out {out}: name another folder than the run's")
        facts = read_models(args.run / "model.safetensors")[1]
        _write(found, facts, out)
        return f"{out}: model, card and example; try `python {out / 'example.py'}`"

    return run("export", work, lambda steps: ["workflow_scripts/export.py"], "")


def _write(found: LoadedRun, facts: Mapping[str, Any], out: Path) -> None:
    found.save(out)
    for net in facts["nets"].values():
        if net["name"] == "module":  # the user's own code goes along
            files = closure(ROOT, own_file(ROOT, net["options"]["factory"]))
            for own in (file for file in files if file.split("/")[0] not in PACKAGES):
                (out / own).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / own, out / own)
    prefix, net = next(iter(facts["nets"].items()))
    client = prefix.split("/")[0].removeprefix("client") if prefix.startswith("client") else ""
    example = EXAMPLE.format(shape=_shape(net["shape"]), client=f", client={client}" if client else "")
    for name, text in (("example.py", example), ("README.md", _card(found, facts, example, out))):
        with atomic(out / name) as file:
            file.write(text)


def _shape(shape: list[int], count: int | str = 2) -> str:
    channels, *sides = shape
    return f"({', '.join(map(str, [count, *sides, *([channels] if channels > 1 else [])]))})"


def _card(found: LoadedRun, facts: Mapping[str, Any], example: str, out: Path) -> str:
    """The model card, as Markdown."""
    summary, spec = found.summary, found.spec["spec"]
    net = next(iter(facts["nets"].values()))
    truth = "known" if summary["clean_known"] else "unknown: training labels may be wrong"
    accuracy = "accuracy on the test set" if summary.get("test_known", True) else "agreement with held-out given labels"
    names = ", ".join(map(markdown_text, facts["class_names"])) or f"numbers 0..{summary['classes'] - 1}"
    rows = {
        "method": _told(spec["method"]),
        "data set": _told(spec.get("dataset", {"source": "arrays in memory"})),
        "label noise": _told(spec.get("noise", "see the run")),
        "clients": f"{summary['clients']}, {summary['samples']} images; {_told(spec.get('partition', 'see the run'))}",
        "training": _told(spec["train"]),
        "seed": str(spec["seed"]),
        "clean labels": truth,
        accuracy: _share(summary["accuracy"]["last"]) + f" after {summary['rounds']} rounds",
        "models": f"{len(facts['nets'])} of view {facts['view']}, {net['parameters']:,} parameters each",
        "images": f"uint8 {_shape(net['shape'], 'n')}, pixels 0..255",
        "mean, std of pixels in 0..1": f"{facts['mean']}, {facts['std']}",
        "classes": names,
        "model.safetensors, SHA-256": sha256_file(out / "model.safetensors"),
        "code": str(found.spec.get("code") or "not recorded"),
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"""# {markdown_text(summary['run']['method'])}, seed {summary['run']['seed']}

Trained by fednoise_core in a simulated federation. To use it, with the library installed:

```python
{example}```

`run.module()` is the same as a `torch.nn.Module`: images [B, C, H, W], uint8 or floats in 0..1, to logits; it
normalises them itself. `model.safetensors` holds the tensors by name; mean, std and class names stand in its metadata.

| | |
|---|---|
{table}

The accuracy holds for images like those of the test set. Nothing was measured about other images, about rare classes
beyond the run's own metrics, or about what the model reveals of its training data.
"""


def _told(value: Any) -> str:
    """Settings in a table's cell."""
    if isinstance(value, Mapping):
        return markdown_text(", ".join(f"{key}: {inner}" for key, inner in value.items())) or "defaults"
    return markdown_text(str(value))


def _share(value: float | None) -> str:
    return "not a number" if value is None else f"{100 * value:.2f} %"


if __name__ == "__main__":
    sys.exit(main())
