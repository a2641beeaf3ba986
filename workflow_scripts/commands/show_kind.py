"""Show what a method, noise, partition, net, dataset, augment, table or figure does, its settings, and an example.

fednoise show method sce
fednoise show noise sym40    an id of config/catalogue.yaml
"""

import argparse
import textwrap
from pathlib import Path

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import did_you_mean
from workflow_scripts.commands.list_kinds import FAMILIES, read_ids, read_kinds
from workflow_scripts.config.yaml_file import format_flow
from workflow_scripts.docgen.settings_tables import list_settings


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("name", help="a name that `fednoise list` shows")
    options = parser.parse_args(arguments)
    kinds, name = read_kinds(options.family), options.name
    file, ids = read_ids(options.family)
    if name not in kinds and name in ids:
        print(f"In {file}:\n  {name}: {format_flow(ids[name])}\n")
        name = ids[name].get({"method": "name", "dataset": "source"}.get(options.family, "kind"))
    if name not in kinds:
        raise SpecError(f"unknown {options.family} {name!r}{did_you_mean(name, {*kinds, *ids})}")
    kind = kinds[name]
    page = Path(f"docs/methods/{name}.md" if options.family == "method" else "docs/reference.md")
    print(f"{textwrap.fill(kind['description'], 100)}\n\nPage: {page}\n\nSettings:")
    for name, values, default, meaning in list_settings(kind):
        print(f"  {name}: {values} (default: {default})".replace(" (default: required)", " (required)"))
        print(textwrap.indent(textwrap.fill(meaning, 96), "      "))
    if not kind["properties"]:
        print("  none")
    print(f"\nExample:\n  {format_flow(kind['example'])}")
    return 0
