"""Write the page of a study from its tables, figures, run folders and artifacts: one HTML file that works offline."""

import argparse
import subprocess
import tempfile
from pathlib import Path

from fednoise_core.io import open_atomic
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.pages.study_page import study_page
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.steps.common import add_runs_arguments, json_argument, run_step


def software_commit() -> str:
    """Ask git for the commit of this software.

    Returns:
        The commit, with "-dirty" where files were changed since; "" outside of git.
    """
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--study",
        required=True,
        type=json_argument,
        help="JSON or a JSON file: {id, title, text, scale, datasets, noises, partitions, methods, train, tables, "
        "figures}, each id with its resolved settings",
    )
    add_runs_arguments(parser)
    parser.add_argument(
        "--shown", required=True, type=json_argument, help="JSON or a JSON file: tables/<id>.csv, … → where it lies"
    )
    parser.add_argument("--out", required=True, help="page to write")
    args = parser.parse_args(argv)

    def write_page() -> str:
        with tempfile.TemporaryDirectory() as folder:
            for name, source in args.shown.items():
                link = Path(folder, name)
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(Path(source).resolve())
            page = study_page(args.study, listed_runs(args.runs_list), folder, software_commit())
        with open_atomic(args.out) as file:
            file.write(page)
        return f"{args.out}: {len(page.encode()) / 1e6:.1f} MB"

    figures, tables = ([spec["kind"] for spec in args.study.get(key, {}).values()] for key in ("figures", "tables"))
    return run_step("study_page", write_page, args, figure=[*SETTING_FIGURES, *figures], table=tables)
