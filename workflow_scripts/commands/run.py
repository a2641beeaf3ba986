"""Make studies, tables, figures or papers, with everything that they need.

fednoise run                           the configured studies
fednoise run quick --cores 8           one study; a table is quick_NAME, every paper is papers
fednoise run fedmixcon --scale cpu     a paper at another scale
fednoise run quick --set train.lr=0.05 --seed 3
                                       other settings than the study's; the results have a folder of their own
fednoise run quick --dry-run           other options, after the targets, go to snakemake as they are
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from fednoise_core.io import SpecError


def main(arguments: list[str] | None = None) -> int:
    """Run the command: start Snakemake for the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="names of studies, tables, figures; default: the configured studies")
    parser.add_argument("--cores", default="all", help="how many cores to use (default: all)")
    parser.add_argument("--scale", help="a file of config/scales, such as cpu or smoke")
    parser.add_argument("--subset", help="only this subset of the studies")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="instead of the study's own")
    parser.add_argument("--seed", action="append", type=int, default=[], help="instead of the study's; may be repeated")
    parser.add_argument("--config", "-C", nargs="+", default=[], metavar="KEY=VALUE", help="as for snakemake")
    typed = sys.argv[1:] if arguments is None else arguments
    cut = typed.index("--") if "--" in typed else len(typed)
    args, others = parser.parse_known_args(typed[:cut])
    while others and not others[0].startswith("-"):  # argparse takes targets from one place only
        args.targets.append(others.pop(0))
    config = [f"{key}={value}" for key in ("scale", "subset") if (value := getattr(args, key))] + args.config
    overrides = args.set + ([f"seeds={args.seed}"] if args.seed else [])
    config += [f"set={json.dumps(overrides)}"] if overrides else []
    command = ["--cores", args.cores, *(["--config", *config] if config else []), *others, *typed[cut + 1 :]]
    start_snakemake([*command, "--", *args.targets])


def start_snakemake(arguments: list[str]) -> NoReturn:
    """Run Snakemake in this process. On Ctrl-C, Snakemake itself then ends its jobs and releases its lock.

    Args:
        arguments: Its command line.

    Raises:
        SpecError: The working folder has no Snakefile.
    """
    if not Path("Snakefile").is_file():
        raise SpecError("no Snakefile here. Run it in the project's folder")
    remove_stale_lock()
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *arguments])


def remove_stale_lock() -> None:
    """Remove the lock of a killed Snakemake in this folder, if no Snakemake of this machine runs here."""
    import psutil

    locks = Path(".snakemake/locks")
    if not any(locks.glob("*.lock")):
        return
    for process in psutil.process_iter(["cmdline", "cwd"]):
        command, cwd = process.info["cmdline"] or [], process.info["cwd"]
        # the folder of another user's process is not known
        if cwd in (None, os.getcwd()) and any(Path(word).name == "snakemake" for word in command):
            return  # Snakemake itself decides whether both can run at the same time
    print("An earlier run was killed and left a lock. No process here holds it: going on", file=sys.stderr)
    shutil.rmtree(locks)
