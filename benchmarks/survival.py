"""A toy study is killed at random moments and its files are damaged: is anything lost, and does the audit name it?

    python -m benchmarks.survival kill --times 60 --folder FOLDER
    python -m benchmarks.survival damage --files 40 --folder FOLDER

`kill` ends a job, Snakemake, or both with SIGKILL at a random moment and starts Snakemake again, until the study is
finished; then it starts anew, until enough kills have happened. No finished folder may change or disappear, and every
finished study must have the bytes of one that ran undisturbed (files that hold times are left out).
`damage` changes, cuts, lengthens or deletes random files of the store, five at a time. The audit must name just these,
and Snakemake must make just their folders again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "workflow"))

from toy_workflow import ENV, TOY, Workflow, lay_out

from workflow_scripts.provenance.checksums import SUMS, read_sums

SNAKEMAKE = ("snakemake", "--cores", "2", "--config", "device=cpu")
VARIES = {"cost.json", "benchmark.tsv"}


def prepare(folder: Path) -> Workflow:
    """A project with the toy study, of 12 rounds."""
    lay_out(folder)
    (folder / "config/studies/toy.yaml").write_text(TOY.replace("rounds: 2", "rounds: 12"))
    return Workflow(folder)


def digests(folder: Path) -> dict[str, str]:
    """File of a finished folder of the store → its SHA-256."""
    found = {}
    for sums in folder.glob("store/**/" + SUMS):
        values = read_sums(sums.parent)
        found |= {str(sums.parent.relative_to(folder) / name): value for name, value in values.items()}
    return found


def steps_of(group: int) -> list[int]:
    """Processes of a session that run a step."""
    listed = subprocess.run(["ps", "-s", str(group), "-o", "pid=,args="], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "-m workflow_scripts." in line]


def end(group: int, victim: str) -> bool:
    """Kill a random step, Snakemake, or all. False: no step was running."""
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
            while left := steps_of(running.pid):  # jobs outlive Snakemake; a user waits for them, or kills them
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


def damage(folder: Path, count: int, seed: int) -> int:
    project = prepare(folder / "damaged")
    project(*SNAKEMAKE)
    draw, failures, done, kinds = random.Random(seed), 0, 0, Counter[str]()
    while done < count:
        before = digests(project.folder)
        folders = draw.sample(sorted({str(Path(file).parent) for file in before}), 3)
        files = draw.sample([file for file in sorted(before) if str(Path(file).parent) in folders], 5)
        for file in files:
            path, kind = project.path(file), draw.choice(["changed", "cut", "longer", "deleted"])
            kinds[kind] += 1
            data = bytearray(path.read_bytes())
            if kind == "changed":
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            elif kind == "cut":
                data = data[: draw.randrange(len(data))]
            elif kind == "longer":
                data.append(draw.randrange(256))
            path.unlink() if kind == "deleted" else path.write_bytes(data)
        named = project.audit()
        unnamed = [file for file in files if not any(finding.startswith(f"{file}:") for finding in named)]
        surplus = [finding for finding in named if finding.split(":")[0] not in files]
        project(sys.executable, "-m", "workflow_scripts.commands.main", "audit", "--remove")
        broken = {str(Path(file).parent) for file in files}
        times = {sums: sums.stat().st_mtime_ns for sums in project.folder.glob("store/**/" + SUMS)}
        project(*SNAKEMAKE)
        made = {
            sums.parent
            for sums in project.folder.glob("store/**/" + SUMS)
            if times.get(sums) != sums.stat().st_mtime_ns
        }
        made_again = {str(path.relative_to(project.folder)) for path in made}
        after = digests(project.folder)
        different = [file for file in before if after.get(file) != before[file] and Path(file).name not in VARIES]
        wrong = [*unnamed, *surplus, *(made_again ^ broken), *different, *project.audit(), *project.stale()]
        done += len(files)
        failures += bool(wrong)
        print(
            f"{done} files: {len(named)} named, {len(broken)} folders damaged, {len(made_again)} made again",
            *wrong,
            flush=True,
        )
    print(f"{dict(kinds)}; {failures} failures")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kill", "damage"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder = args.folder.resolve()
    return bool(kill(folder, args.times, args.seed) if args.what == "kill" else damage(folder, args.files, args.seed))


if __name__ == "__main__":
    sys.exit(main())
