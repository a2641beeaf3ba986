"""Kill a toy study at random moments, and check that nothing is lost.
    python -m benchmarks.survival kill --times 60 --folder FOLDER
    python -m benchmarks.survival methods --times 200 --folder FOLDER

`kill` sends SIGKILL to a job, to Snakemake, or to both at a random moment. It restarts Snakemake until the study is
finished, and then begins a new study, until there were enough kills. No finished folder may change or disappear. Every
finished study must have the same bytes as an undisturbed one (except files that contain times).
`methods` kills training processes of each method at random moments of random rounds, equally often in one process and
with two workers. The files must have the same bytes as an undisturbed run in one process. Damaged files are tested in
tests/workflow/test_content.py.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "workflow"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "steps"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import toy
from fork_train import forking_parent
from test_train_kill import Setting
from toy_workflow import ENV, TOY, Workflow, lay_out

from fednoise_core.methods import METHODS
from fednoise_core.testing.test_contract import FILES
from workflow_scripts.provenance.checksums import SUMS, read_sums

SNAKEMAKE = ("snakemake", "--cores", "2", "--config", "device=cpu")
EXECUTORS = ("sequential", "workers:2")


def prepare(folder: Path) -> Workflow:
    """Make a project with the toy study, which has 12 rounds."""
    lay_out(folder)
    (folder / "config/studies/toy.yaml").write_text(TOY.replace("rounds: 2", "rounds: 12"))
    return Workflow(folder)


def digests(folder: Path) -> dict[str, str]:
    """Map the files of finished folders of the store to their SHA-256."""
    hashes = {}
    for sums in folder.glob("store/**/" + SUMS):
        values = read_sums(sums.parent)
        hashes |= {str(sums.parent.relative_to(folder) / name): value for name, value in values.items()}
    return hashes


def steps_of(group: int) -> list[int]:
    """List the processes of a session that run a step."""
    listed = subprocess.run(["ps", "-s", str(group), "-o", "pid=,args="], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "-m workflow_scripts." in line]


def end(group: int, victim: str) -> bool:
    """Kill all steps, Snakemake, or both. Returns False if there was no step to kill."""
    steps = steps_of(group)
    if victim == "job":
        for pid in steps:
            os.kill(pid, signal.SIGKILL)
        return bool(steps)
    for pid in [group, *(steps if victim == "both" else [])]:
        os.kill(pid, signal.SIGKILL)
    return True


def kill(folder: Path, times: int, seed: int) -> int:
    reference = prepare(folder / "undisturbed")
    start = time.monotonic()
    reference(*SNAKEMAKE)
    seconds = time.monotonic() - start
    again = prepare(folder / "again")
    again(*SNAKEMAKE)
    expected = digests(reference.folder)
    same = {file for file, value in digests(again.folder).items() if value == expected[file]}
    print(f"{len(same)} of {len(expected)} files do not vary from run to run; {seconds:.0f} s a run; the others:")
    print(*sorted(Counter(Path(file).name for file in set(expected) - same).items()))
    draw, killed, failures, finished = random.Random(seed), Counter[str](), 0, 0
    while sum(killed.values()) < times:
        shutil.rmtree(folder / "killed", ignore_errors=True)
        project = prepare(folder / "killed")
        while True:
            before = digests(project.folder)
            running = subprocess.Popen(
                SNAKEMAKE,
                cwd=project.folder,
                env=ENV,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            victim = draw.choice(["job", "snakemake", "both"])
            try:
                running.wait(draw.uniform(1, 0.5 * seconds))
            except subprocess.TimeoutExpired:
                killed[victim] += end(running.pid, victim)
            code = running.wait()
            while left := steps_of(running.pid):  # jobs outlive Snakemake, and a user waits for them or kills them
                if draw.random() < 0.5:
                    time.sleep(1)
                else:
                    os.kill(left[0], signal.SIGKILL)
            after = digests(project.folder)
            lost = [file for file, value in before.items() if after.get(file) != value]
            failures += bool(lost)
            print(f"{sum(killed.values())}: {victim}, exit {code}, {len(after)} files", *lost, flush=True)
            if code == 0:
                break
            subprocess.run(["snakemake", "--unlock"], cwd=project.folder, env=ENV, capture_output=True)
        finished += 1
        different = [file for file in same if after.get(file) != expected[file]]
        findings = project.audit()
        failures += bool(different) + bool(findings)
        print(f"finished: {len(after)} files of {len(expected)}, different {different}, audit {findings}", flush=True)
    print(f"{dict(killed)} kills, {finished} finished studies, {failures} failures")
    return failures


def methods(folder: Path, times: int, seed: int) -> int:
    inputs = folder / "inputs"
    for name, artifact in (("arrays", toy.arrays()), ("labels", toy.toy_labels()), ("partition", toy.toy_partition())):
        artifact.save(inputs / f"{name}.npz")
    draw, killed, failures, runs = random.Random(seed), Counter[str](), 0, 0
    pairs = list(product(METHODS, EXECUTORS))
    with forking_parent() as train:
        for number, (name, executor) in enumerate(pairs):
            share = times * (number + 1) // len(pairs) - killed.total()
            if share <= 0:
                continue
            reference = Setting(folder / "whole" / name, inputs, name, executor="sequential")
            if not reference.out.exists():
                train(reference.order())
            run = Setting(folder / "killed" / f"{name}-{runs}", inputs, name, draw.choice([0, 2048]), None, executor)
            for _ in range(share):  # on a busy machine the run may end before its round is noticed
                code = train(run.order((draw.randint(1, 9), draw.uniform(0, 0.05))))
                killed[executor] += code == -signal.SIGKILL
            code = train(run.order())
            different = [
                file
                for file in FILES
                if not (run.out / file).exists() or (run.out / file).read_bytes() != (reference.out / file).read_bytes()
            ]
            runs += 1
            failures += bool(code or different)
            print(f"{killed.total()}: {name}, {executor}, exit {code}, different {different}", flush=True)
    print(f"{dict(killed)} kills in {runs} runs, {failures} failures")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kill", "methods"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    return bool({"kill": kill, "methods": methods}[args.what](args.folder.resolve(), args.times, args.seed))


if __name__ == "__main__":
    sys.exit(main())
