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
    command = ["snakemake", "--cores", args.cores, *(["--config", *config] if config else [])]
    return subprocess.run([*command, *given[cut + 1 :], "--", *args.targets], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
