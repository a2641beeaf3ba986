"""Train the study paper-size on a GPU that is available for minutes at a time.

First on a machine with Snakemake, and with the same versions of Python, torch and numpy as the machine with the GPU:

    snakemake --cores 2 paper-size_settings
    python -m benchmarks.paper_size pack --folder FOLDER

packs data, labels and partitions with the unfinished runs in the order of the study's subsets. Copy
FOLDER to the machine with the GPU, which needs torch, numpy, pyarrow, safetensors and pydantic. There, in a checkout of
the same commit:

    python -m benchmarks.paper_size run --folder FOLDER --minutes 9 --out OUT

trains until the time is over, with several runs at once under CUDA MPS. The command can be repeated: it skips finished
runs and resumes the others from their checkpoints. It writes to OUT an archive of each finished run that was not
written before, up to --megabytes. Without a GPU the runs are trained on the CPU. Back on the first machine:

    python -m benchmarks.paper_size unpack --folder OUT
"""

import argparse
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.io import open_atomic, write_json
from workflow_scripts.provenance.checksums import SUMS

STUDY = "paper-size"


def pack_runs(folder: Path, study: str, config: dict[str, Any]) -> int:
    """Pack the unfinished runs of a study and their inputs.

    Args:
        folder: Where `jobs.json` and `inputs.tar.xz` are written.
        study: The study's name.
        config: Settings that override config/config.yaml.

    Returns:
        The number of runs.

    Raises:
        SystemExit: The study is at a smaller scale than the paper's.
    """
    from workflow_scripts.config.project import Project
    from workflow_scripts.config.yaml_file import read_yaml
    from workflow_scripts.study.study import Study

    config = {**read_yaml("config/config.yaml"), "device": "cuda", **config}
    if config["scale"] not in ("paper", "smoke"):
        sys.exit(f"scale {config['scale']}: small nets train on a CPU. Expected scale paper")
    subsets = read_yaml(Project(config).study_files[study]).get("subsets", [None])
    jobs: dict[str, dict[str, Any]] = {}
    for subset in subsets:
        for run in Study(Project({**config, "subset": subset}), study).runs:
            plan = run.plan
            if not plan.is_finished:
                names = ("arrays", "labels", "partition", "donor", "weights")
                files = {name: plan.input_files(name) for name in names}
                arguments = ["--code", plan.code, *plan.arguments]
                jobs[plan.folder] = {"folder": plan.folder, "arguments": arguments, "files": files}
    inputs = sorted({file for job in jobs.values() for files in job["files"].values() for file in files})
    with tarfile.open(folder / "inputs.tar.xz", "w:xz") as archive:
        for file in inputs:
            archive.add(file)
    write_json(folder / "jobs.json", list(jobs.values()))
    return len(jobs)


@dataclasses.dataclass
class Training:
    """A run that is being trained.

    Attributes:
        folder: The run's folder.
        process: Its process.
        began: The time of its start, in seconds.
    """

    folder: str
    process: subprocess.Popen[bytes]
    began: float


def start_training(job: dict[str, Any]) -> Training:
    """Start a process that trains one run.

    Args:
        job: An entry of `jobs.json`.
    """
    files = [word for name, paths in job["files"].items() if name != "weights" for word in (f"--{name}", *paths)]
    command = [sys.executable, "-m", "workflow_scripts.steps", "train", *job["arguments"], *files]
    log = Path("logs") / f"{job['folder']}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*command, "--work", f"work/{job['folder']}", "--out", job["folder"]], stdout=file, stderr=file
        )
    return Training(job["folder"], process, time.monotonic())


def train_until(jobs: list[dict[str, Any]], processes: int, end: float) -> list[dict[str, Any]]:
    """Train runs in their order until the time is over. Unfinished runs keep a checkpoint.

    Args:
        jobs: The entries of `jobs.json`.
        processes: Number of runs at a time.
        end: The time to stop, in seconds of `time.monotonic`.

    Returns:
        A record of each run that was started.
    """
    waiting = [job for job in jobs if not Path(job["folder"], SUMS).exists()]
    running: list[Training] = []
    records = []
    while (waiting and time.monotonic() < end) or running:
        while waiting and len(running) < processes and time.monotonic() < end:
            running.append(start_training(waiting.pop(0)))
        if time.monotonic() >= end:
            for training in running:
                training.process.send_signal(signal.SIGTERM)
            for training in running:
                training.process.wait()
        for training in [training for training in running if training.process.poll() is not None]:
            running.remove(training)
            seconds = round(time.monotonic() - training.began, 1)
            records.append({"folder": training.folder, "seconds": seconds, "status": training.process.returncode})
            print(records[-1], flush=True)
            if training.process.returncode not in (0, 75):
                print(Path("logs", f"{training.folder}.log").read_text()[-2000:], flush=True)
        time.sleep(0.2)
    return records


def count_rounds(jobs: list[dict[str, Any]]) -> dict[str, int]:
    """Count the completed rounds of unfinished runs."""
    files = {job["folder"]: Path("work", job["folder"], "progress.jsonl") for job in jobs}
    return {folder: len(file.read_bytes().splitlines()) for folder, file in files.items() if file.exists()}


def write_finished(jobs: list[dict[str, Any]], out: Path, megabytes: int) -> list[str]:
    """Write an archive for each finished run that was not written before, while there is room.

    `small.tar.xz` has the files of every finished run, without models and lists of suspect labels.

    Args:
        jobs: The entries of `jobs.json`.
        out: The folder of the archives.
        megabytes: Room for all of them, in MiB.

    Returns:
        The folders of the runs that are written.
    """
    finished = [Path(job["folder"]) for job in jobs if Path(job["folder"], SUMS).exists()]
    ready = [folder for folder in finished if not Path("work", folder, "written").exists()]
    with tarfile.open(out / "small.tar.xz", "w:xz") as archive:
        for file in sorted(file for folder in finished for file in folder.iterdir()):
            if file.name not in ("model.safetensors", "suspects.csv"):
                archive.add(file)
    with ThreadPoolExecutor() as threads:
        packed = list(threads.map(_compress_run, ready))
    room, written = (megabytes << 20) - (out / "small.tar.xz").stat().st_size, []
    for folder, file in zip(ready, packed, strict=True):
        room -= file.stat().st_size
        if room < 0:
            break
        shutil.move(file, out / file.name)
        Path("work", folder).mkdir(parents=True, exist_ok=True)
        Path("work", folder, "written").touch()
        written.append(folder.as_posix())
    return written


def _compress_run(folder: Path) -> Path:
    """Write an archive of a run. First, second, … bytes of all weights are grouped, which compresses better."""
    target = Path("work", f"{folder.name}.tar.xz")
    with tarfile.open(target, "w:xz") as archive:
        for file in sorted(folder.iterdir()):
            data = file.read_bytes()
            if file.suffix == ".safetensors":
                aligned = len(data) // 4 * 4
                data = np.frombuffer(data[:aligned], np.uint8).reshape(-1, 4).T.tobytes() + data[aligned:]
            entry = tarfile.TarInfo(file.as_posix())
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return target


def unpack_runs(folder: Path) -> list[str]:
    """Unpack the archives of finished runs into the store.

    Args:
        folder: The folder of the archives.

    Returns:
        The folders of the runs.
    """
    runs = []
    for path in sorted(folder.glob("*.tar.xz")):
        if path.name == "small.tar.xz":
            continue
        with tarfile.open(path) as archive:
            files = {Path(name): archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
        for file, data in sorted(files.items(), key=lambda item: item[0].name == SUMS):  # SHA256SUMS is written last
            if file.suffix == ".safetensors":
                aligned = len(data) // 4 * 4
                data = np.frombuffer(data[:aligned], np.uint8).reshape(4, -1).T.tobytes() + data[aligned:]
            file.parent.mkdir(parents=True, exist_ok=True)
            with open_atomic(file, "wb") as stream:
                stream.write(data)
        runs.append(next(iter(files)).parent.as_posix())
    return runs


def start_mps() -> bool:
    """Start CUDA's multi-process service, if the machine has it.

    Returns:
        Whether it was started.
    """
    if shutil.which("nvidia-cuda-mps-control") is None:
        return False
    for name in ("PIPE", "LOG"):
        os.environ.setdefault(f"CUDA_MPS_{name}_DIRECTORY", f"/tmp/mps-{name.lower()}")
        Path(os.environ[f"CUDA_MPS_{name}_DIRECTORY"]).mkdir(parents=True, exist_ok=True)
    return subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False).returncode == 0


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pack", "run", "unpack"])
    parser.add_argument("--folder", type=Path, required=True, help="folder of jobs.json and inputs.tar.xz")
    parser.add_argument("--study", default=STUDY)
    parser.add_argument("--config", type=json.loads, default={}, help="JSON that overrides config.yaml, for pack")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--megabytes", type=int, default=62, help="largest size of the archives in OUT")
    parser.add_argument("--out", type=Path, default=Path("work/out"))
    args = parser.parse_args(argv)
    began = time.monotonic()
    if args.what == "pack":
        args.folder.mkdir(parents=True, exist_ok=True)
        print(f"{pack_runs(args.folder, args.study, args.config)} runs in {args.folder}")
        return
    if args.what == "unpack":
        print("\n".join(unpack_runs(args.folder)))
        return
    os.environ |= {"FEDNOISE_GPU_SLOTS": "64", "OMP_NUM_THREADS": "1"}
    jobs = json.loads((args.folder / "jobs.json").read_text())
    if not all(Path(file).exists() for job in jobs for files in job["files"].values() for file in files):
        with tarfile.open(args.folder / "inputs.tar.xz") as archive:
            archive.extractall(filter="data")
    mps = start_mps()
    args.out.mkdir(parents=True, exist_ok=True)
    facts = {
        "mps": mps,
        "processes": args.processes,
        "minutes": args.minutes,
        "runs": train_until(jobs, args.processes, began + 60 * args.minutes),
        "rounds_of_unfinished": count_rounds(jobs),
        "written": write_finished(jobs, args.out, args.megabytes),
    }
    from benchmarks.machine import machine

    write_json(args.out / "run.json", {**facts, "machine": machine()})
    print(json.dumps(facts, indent=1), f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
