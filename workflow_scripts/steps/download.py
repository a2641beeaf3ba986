"""Make the arrays artifact of one data set: a settings JSON in, one npz out.

python -m workflow_scripts.steps download --spec '{"source": "digits"}' --out digits.npz
"""

import argparse
import os
from pathlib import Path

from fednoise_core.data import sources
from fednoise_core.data.arrays import SIDE_BYTES
from fednoise_core.io import NAMED, write_json
from workflow_scripts.provenance.checksums import write_sums
from workflow_scripts.provenance.step_code import list_sources
from workflow_scripts.steps import common


def search_folders() -> list[str]:
    """List the folders that are searched before a download: the one in FEDNOISE_DATA, which `data_root` sets, too."""
    return [place for place in (os.environ.get("FEDNOISE_DATA"),) if place]


def main(arguments: list[str] | None = None) -> int:
    """Run the step.

    Args:
        arguments: The arguments; those of the process if left out.

    Returns:
        0 if the file is written, 2 if the settings or the data are wrong.
    """
    parser = argparse.ArgumentParser(description="Make the arrays artifact of one data set.")
    parser.add_argument(
        "--spec", required=True, type=common.json_argument, help="settings as JSON: an entry of config/datasets.yaml"
    )
    parser.add_argument("--out", required=True, type=Path, help="the npz file to write")
    parser.add_argument("--cache", default="data/downloads", help="keeps downloads; searched after FEDNOISE_DATA")
    common.add_plan_arguments(parser)
    parser.add_argument("--contents", help="folder to record --fingerprint in, for clones without the user's files")
    parser.add_argument("--fingerprint", default="", help="digest of what the user's files hold")
    parser.add_argument("--side-bytes", type=int, default=SIDE_BYTES, help="images of more bytes get a file beside")
    options = parser.parse_args(arguments)

    def write_arrays() -> str:
        arrays = sources.read(options.spec, search_folders(), options.cache)
        arrays.save(options.out, options.side_bytes)
        if options.contents:
            write_json(Path(options.contents, "contents.json"), options.fingerprint)
            write_sums(options.contents)
        public = 0 if arrays.x_public is None else len(arrays.x_public)
        truth = "known" if arrays.clean_known else "unknown"
        counts = f"{arrays.n} train, {len(arrays.y_test)} test, {public} public, {arrays.classes} classes"
        names = ", ".join(arrays.left_out[:NAMED])
        damaged = f"; {len(arrays.left_out)} damaged images left out: {names}" if arrays.left_out else ""
        return f"{options.out}: {counts}, clean labels {truth}{damaged}"

    return common.run_step("download", write_arrays, options, dataset=list_sources(options.spec))
