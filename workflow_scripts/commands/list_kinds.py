"""List the methods, noises, partitions, nets, datasets, augments, tables or figures that a study can name.

fednoise list methods     a line for each; `fednoise show method NAME` shows the settings
fednoise list noises      kinds, and the ids of config/catalogue.yaml that a study's grid can name
fednoise list datasets    sources, and the ids of config/datasets.yaml
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError
from workflow_scripts.config.project import CATALOGUE, DATASETS
from workflow_scripts.config.yaml_file import format_flow, read_yaml

FAMILIES = ("method", "noise", "partition", "net", "dataset", "augment", "table", "figure")
SCHEMAS = Path("config/schema")


def read_kinds(family: str) -> Mapping[str, Any]:
    """Read the kinds of a family from config/schema.

    Raises:
        SpecError: The working folder is not the project's folder.
    """
    if not SCHEMAS.is_dir():
        raise SpecError(f"no {SCHEMAS} here. Run it in the project's folder")
    return read_yaml(SCHEMAS / f"{family}.yaml")


def read_ids(family: str) -> tuple[str, Mapping[str, Any]]:
    """Read the ids of a family that any study's grid can name. Returns the defining file, and the ids' settings."""
    if family == "dataset":
        return DATASETS, read_yaml(DATASETS)
    return CATALOGUE, read_yaml(CATALOGUE).get(f"{family}s", {})


def main(arguments: list[str] | None = None) -> int:
    """Run the command: print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=[f"{family}s" for family in FAMILIES])
    family = parser.parse_args(arguments).family.removesuffix("s")
    _print_lines({name: kind["description"] for name, kind in read_kinds(family).items()})
    file, ids = read_ids(family)
    if ids:
        print(f"\nIn {file}:")
        _print_lines({name: format_flow(spec) for name, spec in ids.items()})
    return 0


def _print_lines(lines: Mapping[str, str]) -> None:
    width, screen = max(map(len, lines)) + 2, shutil.get_terminal_size((120, 24)).columns
    for name, text in lines.items():
        line = f"{name:{width}}{text.strip()}"
        print(line if len(line) <= screen else f"{line[: screen - 1]}…")
