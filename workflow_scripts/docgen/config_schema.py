"""Write config/schema, and the parts of docs/ that list settings, methods, figures and Python names.

fednoise schema [--check]

The descriptions of settings are taken from their declarations (fednoise_core/settings).
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fednoise_core.data import SOURCES, augment
from fednoise_core.io import open_atomic
from fednoise_core.methods import METHODS
from fednoise_core.nets import NETS, build_net
from fednoise_core.nets.net import Net
from fednoise_core.noise import registry as noises
from fednoise_core.noise.registry import NOISES
from fednoise_core.partition import registry as partitions
from fednoise_core.partition.registry import PARTITIONS
from fednoise_core.settings.declare import doc_summary, json_schema, model_of
from fednoise_core.settings.functions import resolve_kind
from fednoise_core.settings.train import Train
from workflow_scripts.config.file_models import CatalogueFile, ConfigFile, StudyFile
from workflow_scripts.config.validation import describe_kind, describe_settings
from workflow_scripts.docgen import pages
from workflow_scripts.report.figures.draw import FIGURES
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.tables.registry import TABLES

FOLDER = Path("config/schema")
FILE_MODELS = "workflow_scripts/config/file_models.py"
FIRST = "# Made by `fednoise schema` from {source}: change that, not this."
MEANINGS = {  # family → (where it is stated, what the file says)
    "dataset": (
        "the classes in fednoise_core/data",
        "Data sets: source → what it is, its settings (JSON schema), which of them are required, and an example.",
    ),
    "augment": (
        "fednoise_core/data/augment.py",
        "Augmentations: name → what it is, its settings (JSON schema), which of them are required, and an example.",
    ),
    "method": (
        "the classes in fednoise_core/methods",
        "Methods: name → what it is, its settings (JSON schema), which of them are required, an example, and what it "
        "asks of the run: needs_public, several_nets, above_chance, needs_train (see FedAvg).",
    ),
    "net": (
        "the functions in fednoise_core/nets",
        "Networks: name → what it is, its options (JSON schema), which of them are required, an example, and how many "
        "parameters it has for images of the shape `input` (channels, height, width) and so many classes; `smallest`: "
        "the shortest side it takes; `single_side`: the shortest with which its "
        "batch norm takes a batch of one image.",
    ),
    "noise": (
        "the functions in fednoise_core/noise",
        "Noise models: kind → what it is, its settings (JSON schema), which of them are required, and an example.",
    ),
    "partition": (
        "the functions in fednoise_core/partition",
        "Partitions: kind → what it is, its settings (JSON schema), which of them are required, and an example.",
    ),
    "table": (
        "the files of the kinds in workflow_scripts/report/tables",
        "Tables: kind → what it is, its settings (JSON schema), which of them are required, an example, and whether it "
        "is made without_runs or is of_a_paper (see TableKind). Every table is written as CSV (all numbers), Markdown "
        "and LaTeX. The lists pick runs and order them; a name without runs at the present scale is passed over.",
    ),
    "figure": (
        "the files of the kinds in workflow_scripts/report/figures",
        "Figures: kind → what it is, its settings (JSON schema), which of them are required, an example, and whether "
        "it is drawn from tables of_a_paper (see FigureKind). Every figure is written as SVG, PNG, PDF and the CSV "
        "that was drawn. The lists pick runs and order them; a name without runs at the present scale is passed over. "
        f"{', '.join(SETTING_FIGURES)} read the settings' artifacts only (labels, partition, arrays of the first seed "
        "listed); the others read run folders.",
    ),
}


def _describe_family(family: str) -> dict[str, Any]:
    """Describe all entries of a registry: name → schema."""
    if family == "augment":
        return {
            name: describe_settings(
                registered.description, augment.settings_model(name), {"example": {"name": name, **registered.example}}
            )
            for name, registered in augment.AUGMENTS.items()
        }
    described = {}
    for name in REGISTRIES[family]:
        shared = SHARED[family](name) if family in SHARED else ()
        described[name] = describe_kind(family, name, resolve_kind({"kind": name}, REGISTRIES[family], family), *shared)
        if family == "net" and not described[name]["required"]:
            described[name] |= _find_single_side(name, described[name])
    return described


def _find_single_side(name: str, facts: Mapping[str, Any]) -> dict[str, int]:
    """Find `single_side` of a net: the smallest image side at which it trains on single images, if not at all sides."""
    channels, largest, _ = facts["input"]
    for side in range(facts["smallest"], max(largest, facts["smallest"]) + 1):
        if build_net(name, (channels, side, side), facts["classes"]).single_ok:
            return {} if side == facts["smallest"] else {"single_side": side}
    return {"single_side": largest + 1}


def _family_file(family: str) -> str:
    source, meaning = MEANINGS[family]
    lines, kinds = [FIRST.format(source=source), f"# {meaning}"], _describe_family(family)
    settings = {
        name: [_yaml_line(key, schema, 2) for key, schema in kind["properties"].items()] for name, kind in kinds.items()
    }
    shared, anchor = _find_shared(list(settings.values())), "&shared"
    for name, kind in kinds.items():
        entries = settings[name]
        if shared and entries[: len(shared)] == shared:
            first = [f"    <<: {anchor}", *(f"  {line}" for line in shared)]
            entries, anchor = [*(first if anchor == "&shared" else first[:1]), *entries[len(shared) :]], "*shared"
        lines.append(f"{name}:")
        for key, value in kind.items():
            lines += ["  properties:", *entries] if key == "properties" and entries else [_yaml_line(key, value, 1)]
        lines.append("")
    return "\n".join(lines)


def _find_shared(settings: Sequence[list[str]]) -> list[str]:
    """Find the common first settings of several kinds for which YAML's `<<` saves the most lines. Returns the lines."""
    beginnings = Counter(tuple(lines[:count]) for lines in settings for count in range(1, len(lines) + 1))
    spared = {lines: len(lines) * (count - 1) - count for lines, count in beginnings.items()}
    best = max(spared, key=lambda lines: spared[lines], default=())
    return list(best) if spared.get(best, 0) > 0 else []


def _mapping_file(name: str) -> str:
    """The schema of one mapping."""
    source, declared = MAPPINGS[name]
    schema = json_schema(model_of(declared)) | {"description": doc_summary(declared)}
    lines = [FIRST.format(source=source), "$schema: https://json-schema.org/draft/2020-12/schema"]
    keys = ("description", "type", "additionalProperties", "required")
    lines += [_yaml_line(key, schema[key], 0) for key in keys if key in schema]
    lines += ["properties:", *(_yaml_line(key, setting, 1) for key, setting in schema["properties"].items()), ""]
    return "\n".join(lines)


def _yaml_line(key: str, value: Any, depth: int) -> str:
    """YAML of one entry on one line."""
    written = yaml.safe_dump({key: value}, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    return "  " * depth + written.strip()[1:-1]


REGISTRIES: dict[str, Mapping[str, Any]] = {
    "dataset": SOURCES,
    "augment": augment.AUGMENTS,
    "method": METHODS,
    "net": NETS,
    "noise": NOISES,
    "partition": PARTITIONS,
    "table": TABLES,
    "figure": FIGURES,
}
SHARED: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "net": lambda kind: (Net.__init__,),
    "noise": lambda kind: (noises.Shared,),
    "partition": lambda kind: (partitions.shared_settings(kind),),
}
MAPPINGS: dict[str, tuple[str, Any]] = {  # schema of one mapping → where it is stated, and what declares it
    "train": ("fednoise_core.settings.train.Train", Train),
    "study": (FILE_MODELS, StudyFile),
    "catalogue": (FILE_MODELS, CatalogueFile),
    "config": (FILE_MODELS, ConfigFile),
}
FAMILIES = (*REGISTRIES, *MAPPINGS)


def main(arguments: list[str] | None = None) -> int:
    """Run the command. With --check it returns 1 if a file is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only report whether the files are up to date")
    options = parser.parse_args(arguments)
    late = 0
    for family in FAMILIES:
        text = _mapping_file(family) if family in MAPPINGS else _family_file(family)
        late += _update_file(FOLDER / f"{family}.yaml", text, options.check)
    for page in pages.list_pages():  # these read the schemas
        late += _update_file(page, pages.fill_page(page.read_text(encoding="utf-8")), options.check)
    return int(options.check and late > 0)


def _update_file(path: Path, text: str, check: bool) -> bool:
    """Write a file unless it is up to date; with `check` only report. Return whether it was out of date."""
    late = not path.is_file() or path.read_text(encoding="utf-8") != text
    if check:
        print(f"{path}: {'out of date: fednoise schema' if late else 'up to date'}")
    elif late:
        with open_atomic(path) as file:
            file.write(text)
        print(f"{path}: written")
    return late
