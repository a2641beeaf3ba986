"""Make the page on which a user decides about the suspect labels of one finished run.

The page is one HTML file. It is made from the run's suspects.csv and sites.csv, the arrays and the labels. In a real
federation, --site names the folder of a site, which has all of these files.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.encoded import find_images
from fednoise_core.data.table import find_pictures
from fednoise_core.index import read_json
from fednoise_core.io import ArtifactError, open_atomic
from fednoise_core.label_errors.csv_rows import Site, read_rows
from fednoise_core.label_errors.decisions import Suspect
from fednoise_core.label_errors.page import MOST, PER_SITE, labels_page
from fednoise_core.label_errors.systematic import find_systematic_errors
from fednoise_core.label_errors.thumbnails import LARGE
from fednoise_core.noise.labels import Labels
from workflow_scripts.steps import common


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status: 0 done, 2 a file or an argument is wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("arrays", "labels"):
        parser.add_argument(f"--{name}", type=Path, help=f"{name} artifact (npz) of the run")
    parser.add_argument("--donor", type=Path, help="arrays artifact that open-set noise took images from")
    parser.add_argument("--run", type=Path, help="folder of the run: suspects.csv and sites.csv in it")
    parser.add_argument("--site", type=Path, help="folder of a site, in place of arrays, labels and run")
    parser.add_argument("--title", help="title of the page; default: the run's folder")
    parser.add_argument("--per-site", type=int, default=PER_SITE, help="suspects of one site on the page, at most")
    parser.add_argument("--most", type=int, default=MOST, help="suspects on the page, at most")
    common.add_plan_arguments(parser)
    parser.add_argument("--out", required=True, help="page to write")
    args = parser.parse_args(argv)
    if (args.site is None) != all((args.arrays, args.labels, args.run)):
        parser.error("expected --arrays, --labels and --run, or --site alone")

    def write_page() -> str:
        if args.site is not None:
            if not args.site.is_dir():
                raise ArtifactError(f"--site: {args.site}: no such folder")
            (arrays, labels), run = _load_site(args.site), args.site
        else:
            arrays, labels, run = Arrays.load(args.arrays), Labels.load(args.labels), args.run
        if len(labels.noisy) != arrays.n:
            raise ArtifactError(f"{args.labels}: {len(labels.noisy)} labels for {arrays.n} samples of {args.arrays}")
        suspects, sites = read_rows(run / "suspects.csv", Suspect), read_rows(run / "sites.csv", Site)
        title, places = args.title or run.as_posix(), [os.environ.get("FEDNOISE_DATA", ".")]
        encoded = getattr(arrays, "spec", {}).get("source") == "encoded"
        findings = find_systematic_errors(pd.DataFrame(map(dict, suspects)))
        page = labels_page(
            arrays,
            labels,
            suspects,
            sites,
            title,
            summary=read_json(run / "summary.json", ("accuracy",)),
            donor=_donor_images(arrays, labels, args.donor),
            pictures=find_images(arrays, places) if encoded else find_pictures(arrays, places, (LARGE, LARGE)),
            findings=findings,
            per_site=args.per_site,
            most=args.most,
        )
        with open_atomic(args.out) as file:
            file.write(page)
        texts = [finding["text"] for finding in findings]
        return "\n".join([*texts, f"{args.out}: {len(page.encode()) / 1e6:.1f} MB"])

    return common.run_step("labels_page", write_page, args)


def _load_site(folder: Path) -> tuple[Arrays, Labels]:
    from fednoise_core.flower.folders import SITE_DATA, RunSettings, load_data  # imports torch

    images, arrays, _ = load_data(folder, RunSettings.load(folder), SITE_DATA)
    return images.as_arrays(), Labels(arrays["labels"], float("nan"), {})


def _donor_images(arrays: Arrays, labels: Labels, donor: Path | None) -> np.ndarray | None:
    """The images that open-set noise took, as the run's settings say: the public ones, or another data set's."""
    if labels.replaced is None:
        return None
    if donor is not None:
        return Arrays.load(donor).x_train
    return arrays.x_public if labels.spec.get("noise", {}).get("donor", "public") == "public" else None
