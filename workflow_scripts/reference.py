"""Write docs/reference.md: every setting of the config files, from their schemas.

python -m workflow_scripts.reference [--out docs/reference.md] [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fednoise_core.io import SpecError, atomic, canonical
from fednoise_core.settings import words
from workflow_scripts.config_file import read_yaml
from workflow_scripts.schemas import KIND_KEYS

__all__ = ["text"]

Schema = Mapping[str, Any]
INTRO = """\
# Reference

Every setting of the config files: what it means, its type and range, its default. A wrong key or value is refused
before any job starts, with the file, the key and the nearest known one.

This page is made from `config/schema/` by `python -m workflow_scripts.reference`; most of these files are made from the
code, where a setting is stated once, by `python -m workflow_scripts.schema`. Tests compare the three and run the
examples.
"""
FAMILIES = {  # schema → (heading, where it is written)
    "dataset": (
        "Data sets",
        "In `config/datasets.yaml`: `id: {source: …}`. Studies name the id. Your own data: "
        "[add_a_dataset.md](add_a_dataset.md).",
    ),
    "noise": (
        "Noise models",
        "Under `noises` of a study or of `config/catalogue.yaml`: `id: {kind: …}`. A new one: "
        "[add_a_noise_model.md](add_a_noise_model.md).",
    ),
    "partition": ("Partitions", "Under `partitions` of a study or of `config/catalogue.yaml`: `id: {kind: …}`."),
    "net": (
        "Nets",
        "`train.net`: a name, `{name: …, options…}`, or a list of these that clients take in turn. Weights to start "
        "from: [nets.md](nets.md).",
    ),
    "augment": ("Augmentations", "`train.augment`: a name, or `{name: …, settings…}`. Drawn anew in every epoch."),
    "method": (
        "Methods",
        "Under `methods` of a study or of `config/catalogue.yaml`: `id: {name: …, settings…}`, and for any method "
        "`label` (shown in tables and figures), `train` (laid over the study's training settings) and `sweep` "
        "(variants, see [write_a_study.md](write_a_study.md)).",
    ),
    "table": ("Tables", "Under `tables` of a study: `id: {kind: …}`."),
    "figure": ("Figures", "Under `figures` of a study: `id: {kind: …}`."),
}
PLAIN = {
    "train": ("Training settings", "Under `train` of a study, and of a method, whose word wins."),
    "study": ("Studies", "Files in `config/studies/` and `config/papers/`, named as the study."),
    "config": ("The workflow", "`config/config.yaml`, and files given by `--configfile`, which are laid over it."),
}


def text(folder: Path = Path()) -> str:
    """The page, for the project in `folder`."""
    schemas = folder / "config/schema"
    titles = [title for title, _ in (*FAMILIES.values(), *PLAIN.values())]
    parts = [INTRO, " · ".join(f"[{title}](#{_anchor(title)})" for title in titles) + "\n"]
    for family, (title, where) in FAMILIES.items():
        parts += _family(family, title, where, read_yaml(schemas / f"{family}.yaml"))
        if family == "dataset":
            parts.append("### Ids of this project\n")
            rows = [(f"`{name}`", _code(spec)) for name, spec in read_yaml(folder / "config/datasets.yaml").items()]
            parts.append(_table(("id", "settings"), rows))
    for name, (title, where) in PLAIN.items():
        parts += [f"## {title}\n", f"{where}\n", _settings(read_yaml(schemas / f"{name}.yaml"))]
    return "\n".join(parts)


def _family(family: str, title: str, where: str, kinds: Schema) -> Iterator[str]:
    """A schema of kinds: a table of all of them, and one of their settings, equal ones said once."""
    key = KIND_KEYS.get(family, "kind")
    yield f"## {title}\n"
    yield f"{where}\n"
    rows = []
    for name, kind in kinds.items():
        own = ", ".join(f"`{setting}`" for setting in kind["properties"]) or "–"
        row = [f"`{name}`", _cell(kind["description"]), own, _code(kind["example"])]
        if "parameters" in kind:
            shape = "×".join(map(str, kind["input"]))
            row += [f"{kind['parameters']:,} ({shape}, {kind['classes']} classes)", str(kind["smallest"])]
        rows.append(tuple(row))
    head = (key, "what it is, source", "settings", "example", "parameters", "smallest side")
    yield _table(head[: len(rows[0])], rows)
    found: dict[str, tuple[str, Schema, list[str]]] = {}  # a setting in the same words → the kinds that have it
    for name, kind in kinds.items():
        for setting, schema in kind["properties"].items():
            alone = {"properties": {setting: schema}, "required": [r for r in kind["required"] if r == setting]}
            found.setdefault(canonical(alone), (setting, alone, []))[2].append(name)
    order = list(dict.fromkeys(setting for setting, _, _ in found.values()))
    settings = sorted(found.values(), key=lambda one: order.index(one[0]))
    rows = [
        (row[0], _of(names, list(kinds)), *row[1:]) for _, alone, names in settings for row in _rows(alone, alone, "")
    ]
    yield _table(("setting", "of", "type and range", "default", "meaning"), rows)


def _of(names: list[str], every: list[str]) -> str:
    """Which kinds have a setting, in the fewest words."""
    others = [name for name in every if name not in names]
    if not others:
        return "all"
    listed = ", ".join(f"`{name}`" for name in (others if len(others) < len(names) else names))
    return f"all but {listed}" if len(others) < len(names) else listed


def _settings(schema: Schema) -> str:
    """A table of properties, those of inner objects among them."""
    return _table(("setting", "type and range", "default", "meaning"), list(_rows(schema, schema, "")))


def _rows(schema: Schema, root: Schema, above: str) -> Iterator[tuple[str, ...]]:
    for name, found in schema.get("properties", {}).items():
        own = _resolved(found, root)
        default = "required" if name in schema.get("required", []) else ""
        if "default" in own:
            default = f"`{_plain(own['default'])}`"
        yield f"`{above}{name}`", _words(own, root), default or "–", _cell(own.get("description", "–"))
        inner = [own, *own.get("anyOf", [])]
        for part in inner:
            item = _resolved(part.get("items", {}), root)
            yield from _rows(part, root, f"{above}{name}.")
            yield from _rows(item, root, f"{above}{name}[].")


def _words(schema: Schema, root: Schema) -> str:
    """Type and range in words, for a table."""
    return _cell(words(_resolved(schema, root), lambda value: f"`{_plain(value)}`"))


def _resolved(schema: Schema, root: Schema) -> Schema:
    """The schema with its reference into `root` followed; what stands beside the reference wins."""
    if "$ref" not in schema:
        return schema
    found: Any = root
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return {**found, **schema}


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(words: str) -> str:
    """Text inside a table."""
    return words.replace("|", "\\|")


def _code(value: Any) -> str:
    return f"`{_cell(_yaml(value))}`"


def _yaml(value: Any) -> str:
    """A value as it is written in a config file, on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    return written.strip()


def _plain(value: Any) -> str:
    """A value as one would type it."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: written, or up to date; 1: out of date; 2: the schemas cannot be read."""
    parser = argparse.ArgumentParser(description="Write docs/reference.md from config/schema/.")
    parser.add_argument("--out", default="docs/reference.md", type=Path)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    options = parser.parse_args(arguments)
    try:
        page = text()
    except SpecError as error:
        print(f"reference: {error}", file=sys.stderr)
        return 2
    if options.check:
        same = options.out.is_file() and options.out.read_text(encoding="utf-8") == page
        print(f"{options.out}: {'up to date' if same else 'out of date: python -m workflow_scripts.reference'}")
        return 0 if same else 1
    with atomic(options.out) as file:
        file.write(page)
    print(f"{options.out}: {len(page.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
