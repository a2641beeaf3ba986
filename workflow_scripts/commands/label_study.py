"""Write a study that finds wrong labels in your own data: config/studies/NAME.yaml.

fednoise label-study mine.npz                               then: snakemake --cores 2 mine
fednoise label-study table.csv --label diagnosis --client hospital
fednoise label-study photos --size 64                       photos/SITE/CLASS/image.png
fednoise label-study photos --given labels.csv --size 64

docs/clean_your_labels.md. To do more than this study does, edit its file: docs/write_a_study.md.
"""

import argparse
import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.images import SUFFIXES as IMAGE_SUFFIXES
from fednoise_core.data.label_table import COLUMNS, rows_of
from fednoise_core.data.table import SUFFIXES, read_frame
from fednoise_core.data.user_npz import KNOWN, arrays_in, is_given
from fednoise_core.io import NAMED, ArtifactError, SpecError, open_atomic, safe_cell
from workflow_scripts import paths
from workflow_scripts.config.project import STUDIES, Project
from workflow_scripts.steps.common import report_error
from workflow_scripts.steps.download import search_folders
from workflow_scripts.study.study import Study

ONLY_FOR = {"given": "folders of images", "size": "image files"} | dict.fromkeys(
    ("label", "client", "image"), "tables of features"
)
# settings for images; those for feature vectors (VECTORS) make a discriminant from sums, in one round
IMAGES = {"fit": "", "net": "{name: small_cnn, width: 16}", "rounds": 8}
VECTORS = {"fit": "fit: sums, ", "net": "linear", "rounds": 1}
HOLDOUT = 0.1  # share of the given data that is used as the test set; its labels are not checked
STUDY = """\
# Finds wrong labels in {path}; written by `fednoise label-study`. Every key: docs/reference.md.
title: {title}
datasets:
  {dataset}: {data}
noises:
  asis: {{kind: given}}
partitions:
  sites: {partition}
methods:
  found: {{name: cross_fitted, {fit}label: cross_fitted}}
train:
  {{net: {net}, rounds: {rounds}, fraction: 1.0, epochs: 2, batch: 32, lr: 0.05, momentum: 0.9, eval_every: 4}}
seeds: [0]
grid:
  - {{datasets: [{dataset}], noises: [asis], partitions: [sites], methods: [found]}}
tables:
  main: {{kind: accuracy}}
labels: true
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`. Unless it is 0, nothing was written.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="npz, CSV, Parquet file, or folder of images")
    parser.add_argument("--name", help="of the study and the data set; default: the data's file name")
    parser.add_argument("--given", help="CSV of given labels and owners of the image folder")
    parser.add_argument("--label", help="column of a table's labels; default: label")
    parser.add_argument("--client", help="column of a table's owners; default: client, if there is one")
    parser.add_argument("--image", help="column of a table with paths of pictures; default: image, if there is one")
    parser.add_argument(
        "--size", type=int, help="side in pixels that images of a folder are scaled to; default: 64, or 224"
    )
    parser.add_argument(
        "--encoder", help="pretrained net of torchvision, such as resnet18, for feature vectors of images"
    )
    args = parser.parse_args(argv)
    try:
        name = args.name or re.sub(r"[^A-Za-z0-9_-]+", "-", args.data.stem).strip("-_")
        page = _write_study(args, name)
    except (SpecError, ArtifactError, OSError) as error:
        return report_error("fednoise label-study", error)
    print(f"{STUDIES}/{name}.yaml is written. The page will be\n{page}\nnow: snakemake --cores 2 {name}")
    return 0


def _write_study(args: argparse.Namespace, name: str) -> str:
    """Write the study, and return the path of its future page. A study that cannot be planned is removed again."""
    problem = paths.name_problem(name, study=True)
    if problem:
        raise SpecError(f"--name: {problem}")
    file = Path(STUDIES, f"{name}.yaml")
    if file.exists():
        raise SpecError(f"{file} exists: remove it, or choose another --name")
    spec = _find_settings(args, name)
    arrays = sources.read(spec, search_folders())
    print(_describe_data(spec, arrays))
    vectors = arrays.x_train.shape[1:3] == (1, 1)
    if args.encoder:
        spec |= {"source": "encoded", "encoder": _read_encoder(args.encoder)}
    values = {
        "path": json.dumps(str(args.data)),
        "title": json.dumps(f"Wrong labels in {args.data.name}"),
        "partition": "{kind: natural}" if arrays.client is not None else "{kind: iid, clients: 1}",
        **(VECTORS if vectors or args.encoder else IMAGES),
        "dataset": json.dumps(name),
        "data": json.dumps(spec),
    }
    try:
        with open_atomic(file) as out:
            out.write(STUDY.format(**values))
        (run,) = Study(Project.load(), name).runs
    except (SpecError, ArtifactError, OSError):
        file.unlink(missing_ok=True)
        raise
    return run.labels_page


def _describe_data(spec: dict[str, Any], arrays: Arrays) -> str:
    """Describe the classes, sites and samples, and name the arrays or columns that are not used."""
    sites = ("no client",) if arrays.client is None else arrays.sites or np.unique(arrays.client)
    lists = {"Classes": arrays.names or range(arrays.classes), "Sites": sites}
    parts = [
        f"{key}: {len(names)} ({', '.join(map(str, names[:NAMED]))}{', …' * (len(names) > NAMED)})"
        for key, names in lists.items()
    ]
    parts.append(f"Samples: {arrays.n + ('test' in spec) * len(arrays.y_test):,}")
    file, unused = sources.list_files(spec, search_folders())[-1], list[str]()
    if spec["source"] == "npz":
        unused = [name for name in arrays_in(file) if name not in KNOWN and not is_given(name)]
    elif "given" in spec:
        unused = [name for name in rows_of(file)[0] if name not in COLUMNS]
    return ". ".join([*parts, *([f"Not used: {', '.join(unused)}"] if unused else [])])


def _read_encoder(text: str) -> Any:
    """Read a name, or {name: …, options…}, and check that the net and its weights exist or can be downloaded."""
    from fednoise_core.nets.encoder import load_encoder  # imports torch

    try:
        encoder = json.loads(json.dumps(yaml.safe_load(text)))
    except (yaml.YAMLError, TypeError, ValueError) as error:  # YAML has dates, JSON has none
        raise SpecError(f"--encoder: expected a name or {{name: …, options…}}, got {text!r}") from error
    load_encoder(encoder)
    return encoder


def _find_settings(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Settings of the data set."""
    if args.data.is_dir():
        return _folder_settings(args, name)
    if not args.data.is_file():
        raise SpecError(f"{args.data}: no such file or folder")
    if args.data.suffix not in SUFFIXES:
        _refuse_options(args, *ONLY_FOR)
        return _npz_settings(args)
    _refuse_options(args, "given")
    columns = set(read_frame(args.data).columns)
    if args.encoder and "file" not in columns:
        raise SpecError(f"--encoder: {args.data} has feature vectors already; leave it out")
    if "file" in columns:  # of images, which lie beside it
        args.data, args.given = args.data.parent, args.data.name
        return _folder_settings(args, name)
    _refuse_options(args, "size")
    chosen = {key: getattr(args, key) or (key if key in columns else None) for key in ("label", "client", "image")}
    spec = {"source": "table", "path": str(args.data), "test": {"holdout": HOLDOUT}}
    return {**spec, **{key: column for key, column in chosen.items() if column}}


def _refuse_options(args: argparse.Namespace, *names: str) -> None:
    if wrong := [name for name in names if getattr(args, name) is not None]:
        raise SpecError(f"--{wrong[0]} is for {ONLY_FOR[wrong[0]]}, and has no effect on {args.data}; leave it out")


def _npz_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Settings of the data set. The labels as collected are checked, or y_train if the file has none."""
    arrays = arrays_in(args.data)
    spec: dict[str, Any] = {"source": "npz", "path": str(args.data)}
    if "y_train" in arrays and not any(is_given(name) for name in arrays):
        spec["clean_known"] = False
    if "x_test" not in arrays:
        spec["test"] = {"holdout": HOLDOUT}
    return spec


def _folder_settings(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Settings of the data set."""
    _refuse_options(args, "label", "client", "image")
    size = args.size or (224 if args.encoder else 64)
    spec = {"source": "imagefolder", "path": str(args.data), "size": size, "clean_known": False}
    if not (args.data / "test").is_dir():
        spec["test"] = {"holdout": HOLDOUT}
    table = args.given
    if table is None and not (args.data / "train").is_dir():
        table = _write_labels(args.data, Path("data", f"{name}-labels.csv"))
    return spec if table is None else {**spec, "given": str(table)}


def _write_labels(root: Path, out: Path) -> str:
    """Write a CSV of the labels, and of the owners if known, from folders CLASS/image or SITE/CLASS/image."""
    paths = [path.relative_to(root) for path in sorted(root.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES]
    depths = {len(path.parts) for path in paths}
    if depths not in ({2}, {3}):
        raise SpecError(f"{root}: expected images in CLASS/ or all in SITE/CLASS/, train/CLASS/, or a CSV as --given")
    columns = ("file", "label", "client")[: depths.pop()]
    with open_atomic(out) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        for path in paths:
            table.writerow(map(safe_cell, (path.as_posix(), path.parts[-2], path.parts[0])[: len(columns)]))
    print(f"{out}: labels of {len(paths):,} images" + (", and their sites" if len(columns) == 3 else ""))
    return out.as_posix()


if __name__ == "__main__":
    sys.exit(main())
