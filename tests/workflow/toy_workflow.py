"""A project folder with a toy study, and the commands that a user types in it."""

import contextlib
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("workflow_scripts", "fednoise_core")
PARTS = ("Snakefile", "rules", "config", "captions", "profiles", *PACKAGES, "pyproject.toml")
PARTS += ("dvc.yaml", ".dvcignore", ".gitignore")
PARTS += (".dvc/plots", ".dvc/config", ".dvc/plots_page.html", ".dvc/.gitignore")
ENV = {
    **os.environ,
    "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
    "FEDNOISE_CORES": "2",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@localhost",
}
REAL = ENV.copy()  # with it, commands are processes of their own: see conftest.py

TOY = """\
title: Toy
partitions:
  open: {kind: openset, clients: 4, mode: uniform}
  even: {kind: iid, clients: 4}
methods:
  feddpcont: {name: feddpcont, beta: 1.0}
train: {net: mlp, rounds: 2, fraction: 0.5, epochs: 1, batch: 64}
seeds: [0]
grid:
  - {datasets: [digits], noises: [sym40], partitions: [open], methods: [fedavg, feddpcont, fedcorr]}
  - {datasets: [digits], noises: [random20], partitions: [even], methods: [fedavg]}
tables:
  main: {kind: accuracy}
  plain: {kind: accuracy, methods: [fedavg], noises: [random20]}
figures:
  curves: {kind: curves}
  classes: {kind: histogram, noises: [sym40]}
"""
# rules without a command of their own, and those that only copy
COLLECTING = ("all", "toy", "toy_runs", "toy_settings", "toy_main", "stage_data", "stored")
COLLECTING += ("show_table", "show_figure", "show_study")
FINISHED = re.compile(r"^Finished jobid: \d+ \(Rule: (\w+)\)", re.M)


class Workflow:
    """A project folder with the toy study, and the commands that a user types in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *command: str, check: bool = True) -> str:
        """Run a command and return its output. Snakemake is quiet in this folder, so all of its output is returned."""
        if command[0] == "snakemake" and "--quiet" not in command:
            command = (*command, "--quiet", "host")
        done = subprocess.run(command, cwd=self.folder, env=ENV, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        assert not check or done.returncode == 0, f"{' '.join(command)}: exit status {done.returncode}\n{output}"
        return output

    def status(self, *command: str) -> int:
        """A command's exit status."""
        return subprocess.run(command, cwd=self.folder, env=ENV, capture_output=True, check=False).returncode

    def snakemake(self, *arguments: str) -> dict[str, int]:
        """Run Snakemake; returns how many jobs of each rule were run."""
        output = self("snakemake", "--quiet", "host", "--cores", "2", *arguments)
        rules = [rule for rule in FINISHED.findall(output) if rule not in COLLECTING]
        return {rule: rules.count(rule) for rule in sorted(set(rules))}

    def finished(self, rule: str) -> int:
        """The number of jobs of a rule that were run in this folder so far, by Snakemake's logs."""
        logs = self.path(".snakemake/log").iterdir() if self.path(".snakemake/log").is_dir() else ()
        return sum(FINISHED.findall(log.read_text()).count(rule) for log in logs)

    def stale(self, *arguments: str) -> dict[str, int]:
        """The jobs that a dry run lists: rule → number."""
        output = self("snakemake", "-n", *arguments)
        table = re.search(r"^Job stats:\njob +count\n-+ +-+\n(.*?)^total", output, re.M | re.S)
        if table is None:
            assert "Nothing to be done" in output, output
            return {}
        rows = [line.split() for line in table[1].splitlines()]
        return {rule: int(number) for rule, number in rows if rule not in COLLECTING}

    def audit(self) -> list[str]:
        """Findings of the audit."""
        output = self("python", "-m", "workflow_scripts.commands.main", "audit", check=False)
        return [line.removeprefix("AUDIT: ") for line in output.splitlines() if line.startswith("AUDIT: ")]

    def rows(self, study: str = "toy") -> list[dict[str, str]]:
        """The rows of a study's index."""
        with self.path(f"results/{study}/index.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def run(self, method: str, noise: str = "sym40") -> str:
        """The folder of the toy study's run."""
        (row,) = [row for row in self.rows() if (row["method"], row["noise"]) == (method, noise)]
        return row["dir"]

    def path(self, file: str) -> Path:
        """A file of the project."""
        return self.folder / file

    @contextlib.contextmanager
    def edited(self, file: str, old: str, new: str) -> Iterator[None]:
        """Within the block, `file` has `new` in place of the first `old`."""
        path = self.path(file)
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")


def lay_out(folder: Path, papers: bool = False) -> None:
    """Copy the project (not its tests or results) to `folder`, with the toy study in place of its studies.

    papers: Copy the papers, too. Each `snakemake` reads the titles of all studies.
    """
    for part in PARTS:
        source, target = ROOT / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            left_out = ("__pycache__", "studies", *([] if papers else ["papers"]))
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out))
        else:
            shutil.copy(source, target)
    config, study = folder / "config/config.yaml", folder / "config/studies/toy.yaml"
    config.write_text(re.sub(r"studies:\n(  - .*\n)+", "studies: [toy]\n", config.read_text()))
    study.parent.mkdir()
    study.write_text(TOY)
