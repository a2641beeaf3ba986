"""Make studies, tables, figures or papers, with all that they need.

fednoise run                           the configured studies
fednoise run quick --cores 8           one study; a table is quick_NAME, every paper is papers
fednoise run fedmixcon --scale cpu     a paper at another scale
fednoise run quick -- --dry-run        what follows -- goes to snakemake as it is
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from workflow_scripts.steps.common import USER_ERROR


def main(arguments: list[str] | None = None) -> int:
    """Exit status: that of snakemake; 2 where there is no Snakefile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="names of studies, tables, figures; default: the configured studies")
    parser.add_argument("--cores", default="all", help="how many cores to use (default: all)")
    parser.add_argument("--scale", help="a file of config/scales, such as cpu or smoke")
    parser.add_argument("--subset", help="only this subset of the studies")
    given = sys.argv[1:] if arguments is None else arguments
    cut = given.index("--") if "--" in given else len(given)
    args = parser.parse_args(given[:cut])
    if not Path("Snakefile").is_file():
        print("fednoise run: no Snakefile here; run it in the project's folder", file=sys.stderr)
        return USER_ERROR
    config = [f"{key}={value}" for key in ("scale", "subset") if (value := getattr(args, key))]
    command = ["--cores", args.cores, *(["--config", *config] if config else [])]
    return run_snakemake([*command, *given[cut + 1 :], "--", *args.targets])


def run_snakemake(arguments: list[str]) -> int:
    """Run Snakemake and wait for its end, also after Ctrl-C.

    Snakemake gets the same signal, and its jobs write their checkpoints. If it were killed now, its lock would stay.

    Args:
        arguments: The command line.

    Returns:
        Its exit status.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, and Snakemake has ended.
    """
    process, interrupted = subprocess.Popen([sys.executable, "-m", "snakemake", *arguments]), False
    while process.poll() is None:
        try:
            process.wait()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
