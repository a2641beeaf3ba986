"""One training run, with all code that decides its numbers. `train.py` is the command line around it.

The code hash of a run starts at this module (`StepCode.step_entries`). A changed command line makes no run anew.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fednoise_core.io import json_digest, remove_unfinished, sha256_file
from workflow_scripts.machine.versions import check_versions
from workflow_scripts.provenance.checksums import write_sums


@dataclass(frozen=True)
class RunFiles:
    """Artifacts that a run reads, and folders that it writes to."""

    arrays: Path
    labels: Path
    partition: Path
    out: Path
    work: Path
    donor: Path | None = None

    def hash_inputs(self, net: Any) -> dict[str, str]:
        """Hash every file that the run reads.

        Args:
            net: The setting `train.net`, which may name files of weights.

        Returns:
            Name of the input → SHA-256.
        """
        from fednoise_core.nets.weights import weight_files

        files = {name: getattr(self, name) for name in ("arrays", "labels", "partition", "donor")}
        files |= {f"weights {path}": path for path in weight_files(net)}
        return {name: sha256_file(path) for name, path in files.items() if path}


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a run. The help of the command line explains them.

    The key of a checkpoint includes the code hash and the versions. The result files record both.
    """

    device: str = "cpu"
    executor: str = "sequential"
    threads: int = 1
    fast: bool = False
    checkpoint_seconds: float = 20.0
    checkpoint_rounds: int = 0
    keep_mb: int = 1024
    code: str = ""
    versions: str = ""


def set_up_torch(options: TrainingOptions) -> None:
    """Import torch and fix what numbers depend on: threads, and on a GPU the order of sums.

    Args:
        options: How the run is made.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.set_num_threads(options.threads)
    if options.device == "cuda" and not options.fast:
        # torch.use_deterministic_algorithms also imports torch._inductor, which takes as long as importing torch
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        # otherwise each new buffer costs one more kernel
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def train_job(spec: dict[str, Any], files: RunFiles, options: TrainingOptions, stop: Callable[[], bool]) -> None:
    """Load the artifacts, run, and write the results. Then the checkpoint is removed.

    Args:
        spec: Settings of the run (`train.SPEC_KEYS`).
        files: Where the run reads and writes.
        options: How it is trained.
        stop: Asked after each round. True ends the run with a checkpoint.

    Raises:
        Stopped: `stop` was true.
        SpecError: A setting is wrong.
        ArtifactError: A file is damaged.
    """
    from fednoise_core.api.simulate import run_federation
    from fednoise_core.data.arrays import Arrays
    from fednoise_core.data.partition import Partition
    from fednoise_core.engine.loop import Saving
    from fednoise_core.engine.state import clear_checkpoint
    from fednoise_core.noise.labels import Labels

    inputs, versions = files.hash_inputs(spec["train"].get("net")), check_versions(options.versions)
    key = json_digest(spec, options.code, versions, inputs)
    for folder in (files.work, files.out):
        remove_unfinished(folder)
    saving = Saving(files.work / "checkpoint.pt", key, options.checkpoint_seconds, options.checkpoint_rounds, stop)
    digest = json_digest(spec)
    run_federation(
        Arrays.load(files.arrays),
        Labels.load(files.labels),
        Partition.load(files.partition),
        spec["method"],
        spec["train"],
        spec["seed"],
        donor=Arrays.load(files.donor) if files.donor else None,
        device=options.device,
        executor=options.executor,
        saving=saving,
        room=options.keep_mb << 20,
        out=files.out,
        spec={"spec": spec, "code": options.code, "versions": versions, "inputs": inputs, "digest": digest},
        label=files.out.as_posix().removeprefix("store/runs/"),
        console=sys.stdout,
        progress=files.work / "progress.jsonl",
        threads=options.threads,
    )
    write_sums(files.out)
    clear_checkpoint(saving.path)
    (files.work / "progress.jsonl").unlink(missing_ok=True)
