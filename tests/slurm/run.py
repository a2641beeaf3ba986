"""`make test-slurm`: a small study through profiles/slurm as docs/cluster.md says, on a real Slurm of one node. The
submitting Snakemake is killed in the middle and continued; the results are compared with a local run's, byte for byte.
"""

import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from one_node import one_node
from toy_workflow import ENV, Workflow, lay_out

STUDY = """\
title: A study for a cluster
partitions:
  open: {kind: openset, clients: 4, mode: uniform}
  even: {kind: iid, clients: 4}
train: {net: small_cnn, rounds: 60, fraction: 1.0, epochs: 5, batch: 16}
seeds: [0]
grid:
  - {datasets: [digits], noises: [sym40], partitions: [open], methods: [fedavg, scaffold, fedcorr]}
  - {datasets: [digits], noises: [random20, sym40], partitions: [even], methods: [fedavg]}
tables:
  main: {kind: accuracy}
figures:
  curves: {kind: curves}
  classes: {kind: histogram, noises: [sym40]}
scales:
  smoke: {train: {rounds: 60, epochs: 5}} # long enough to be killed in
"""
RUNS, ROOT = 5, "results/toy-smoke"
SCALE = ("--configfile", "config/scales/smoke.yaml")
# as the page says for a cluster without accounting; the last two make a test short
SLURM = ("--profile", "profiles/slurm", "--slurm-no-account", "--slurm-status-command", "squeue")
QUICKLY = ("--slurm-init-seconds-before-status-checks", "3", "--seconds-between-status-checks", "2")
TIMED = ("cost.json", "report.html", "SHA256SUMS")  # hold seconds, or digests of files with seconds
PATIENCE = 900.0


def main() -> int:
    """Run the test. Exit code 0: passed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the daemons are stopped then, too
    with tempfile.TemporaryDirectory(prefix="slurm-test-") as place:
        local, cluster = (_laid_out(Path(place, name)) for name in ("local", "cluster"))
        report("a local run, to compare with")
        local("snakemake", "--cores", "2", *SCALE, "--config", "device=cpu")
        with one_node() as logs:
            try:
                _through_slurm(cluster)
            except BaseException:
                for log in sorted(logs.glob("slurm*.log")):
                    print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
                raise
        first, second = digests(local), digests(cluster)
        different = sorted(file for file in first.keys() | second.keys() if first.get(file) != second.get(file))
        if different:
            sys.exit(f"not as in the local run: {', '.join(different)}")
        report(f"{len(first)} result files are byte for byte those of the local run")
    report("passed")
    return 0


def _laid_out(folder: Path) -> Workflow:
    """The project with the study, in a folder of its own."""
    lay_out(folder)
    (folder / "config/studies/toy.yaml").write_text(STUDY)
    return Workflow(folder)


def _through_slurm(flow: Workflow) -> None:
    """Submit, kill the submitting Snakemake when a run is under way and another done, cancel, continue."""
    command = ["snakemake", *SLURM, *QUICKLY, *SCALE, "--config", "device=cpu"]
    report(f"through Slurm: {' '.join(command)}")
    with open(flow.path("first.log"), "wb") as log:
        first = subprocess.Popen(command, cwd=flow.folder, env=ENV, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: under_way(flow) and finished(flow) >= 1, first, flow.path("first.log"))
    finally:
        first.kill()
        first.wait()
    before = finished(flow)
    report(f"killed with {before} of {RUNS} runs finished; cancelled are: {'; '.join(queue())}")
    if not 0 < before < RUNS:
        sys.exit("the kill did not come in the middle")
    subprocess.run(["scancel", "-u", "root"], check=True)
    wait_until(lambda: not queue())
    flow("snakemake", "--unlock", *SCALE)
    output = flow(*command)
    went_on = len(re.findall(r"resumed from round", logs(flow)))
    report(f"continued: {finished(flow)} of {RUNS} runs finished, {went_on} of them from a checkpoint")
    if finished(flow) != RUNS:
        sys.exit(f"runs are missing\n{output}")
    if "Nothing to be done" not in flow("snakemake", "-n", *SCALE, "--config", "device=cpu"):
        sys.exit("a dry run on the submitting machine finds work left to do")
    if flow.audit():
        sys.exit(f"the audit finds {flow.audit()}")
    report("nothing is left to do, and the audit finds nothing")


def report(text: str) -> None:
    """Print a line about the test's progress."""
    print(f"test-slurm: {text}", flush=True)


def wait_until(done, process: subprocess.Popen[bytes] | None = None, log: Path | None = None) -> None:  # type: ignore[no-untyped-def]
    """Wait until done() is true. It fails if the process ends first or PATIENCE is over."""
    end = time.monotonic() + PATIENCE
    while not done():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > end:
            text = log.read_text()[-5000:] if log else ""
            sys.exit(f"{'Snakemake ended' if ended else 'nothing happened'} before it could be killed\n{text}")
        time.sleep(0.2)


def finished(flow: Workflow) -> int:
    """Runs that are done."""
    return len(list(flow.path("store/runs").rglob("SHA256SUMS")))


def under_way(flow: Workflow) -> bool:
    """True if a run has finished some rounds."""
    return any(path.read_text().count("\n") > 3 for path in flow.path("work").rglob("progress.jsonl"))


def queue() -> list[str]:
    """Jobs of the queue."""
    command = ["squeue", "-h", "-o", "%i (%T, %C cores, %m, %l)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def logs(flow: Workflow) -> str:
    """The text of the training runs' logs."""
    return "".join(path.read_text() for path in flow.path("logs/train").rglob("*.log"))


def digests(flow: Workflow) -> dict[str, str]:
    """File → SHA-256 of all results and data, except files that hold seconds."""
    files = [path for folder in ("store", ROOT) for path in flow.path(folder).rglob("*") if path.is_file()]
    return {
        path.relative_to(flow.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in TIMED
    }


if __name__ == "__main__":
    os.environ.pop("FEDNOISE_DATA", None)
    sys.exit(main())
