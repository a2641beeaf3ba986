"""Tables of every setting of the config files, made from config/schema. The page docs/reference.md shows them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from fednoise_core.settings.words import describe_schema
from workflow_scripts.provenance.step_code import ROOT

Schema = Mapping[str, Any]
CONFIG = ROOT / "config"
FAMILIES = {  # schema of kinds → (heading, key that names the kind, where it is written)
    "dataset": (
        "Data sets",
        "source",
        "In a study's `datasets` or in `config/datasets.yaml`: `id: {source: …}`. Studies name the id. For your own "
        "data see [add a data set](add_a_dataset.md).",
    ),
    "noise": (
        "Noise models",
        "kind",
        "Under `noises` of a study or of `config/catalogue.yaml`: `id: {kind: …}`. See also "
        "[add a noise model](add_a_noise_model.md).",
    ),
    "partition": (
        "Partitions",
        "kind",
        "Under `partitions` of a study or of `config/catalogue.yaml`: `id: {kind: …}`.",
    ),
    "net": (
        "Nets",
        "name",
        "`train.net`: a name, `{name: …, options…}`, or a list of these that clients take in turn. For initial weights "
        "see [networks](nets.md).",
    ),
    "augment": (
        "Augmentations",
        "name",
        "`train.augment`: a name, or `{name: …, settings…}`. Drawn again in every epoch.",
    ),
    "method": (
        "Methods",
        "name",
        "Under `methods` of a study or of `config/catalogue.yaml`: `id: {name: …, settings…}`, and for any method "
        "`label` (shown in tables and figures), `train` (overrides the study's training settings) and `sweep` "
        "(variants, see [write a study](write_a_study.md)).",
    ),
    "table": ("Tables", "kind", "Under `tables` of a study: `id: {kind: …}`."),
    "figure": ("Figures", "kind", "Under `figures` of a study: `id: {kind: …}`."),
}
OTHERS = {  # schema of one mapping → (heading, where it is written)
    "train": ("Training settings", "Under `train` of a study, or of a method, which overrides the study."),
    "study": ("Studies", "Files in `config/studies/` and `config/papers/`. The name of the file is that of the study."),
    "config": ("The workflow", "`config/config.yaml`, and files given by `--configfile`, which override it."),
}


def format_tables() -> str:
    """Return Markdown with links to all sections, and a section for each family of settings."""
    titles = [about[0] for about in (*FAMILIES.values(), *OTHERS.values())]
    parts = [" · ".join(f"[{title}](#{title.lower().replace(' ', '-')})" for title in titles) + "\n"]
    for family, (title, key, where) in FAMILIES.items():
        parts += [f"## {title}\n", f"{where}\n", *_kinds(key, _load(f"schema/{family}.yaml"))]
        if family == "dataset":
            rows = [(f"`{name}`", _code(spec)) for name, spec in _load("datasets.yaml").items()]
            parts += ["### Ids of this project\n", _table(("id", "settings"), rows)]
    for name, (title, where) in OTHERS.items():
        schema = _load(f"schema/{name}.yaml")
        table = _table(("setting", "type and range", "default", "meaning"), list(_rows(schema)))
        parts += [f"## {title}\n", f"{where}\n", table]
    return "\n".join(parts)


def _load(file: str) -> Any:
    return yaml.safe_load((CONFIG / file).read_text(encoding="utf-8"))


def _kinds(key: str, kinds: Schema) -> Iterator[str]:
    """Yield a table of all kinds, and a table of their settings, in which equal settings share a row."""
    rows = []
    for name, kind in kinds.items():
        settings = ", ".join(f"`{setting}`" for setting in kind["properties"]) or "–"
        row = [f"`{name}`", _text(kind["description"]), settings, _code(kind["example"])]
        if "parameters" in kind:
            shape = "×".join(map(str, kind["input"]))
            row += [f"{kind['parameters']:,} ({shape}, {kind['classes']} classes)", str(kind["smallest"])]
        rows.append(tuple(row))
    head = (key, "what it is, source", "settings", "example", "parameters", "smallest side")
    yield _table(head[: len(rows[0])], rows)
    shared: dict[str, tuple[str, Schema, list[str]]] = {}  # setting as shown → its schema and the kinds that have it
    for name, kind in kinds.items():
        for setting, schema in kind["properties"].items():
            alone = {
                "properties": {setting: schema},
                "required": [field for field in kind["required"] if field == setting],
            }
            shared.setdefault(json.dumps(alone, sort_keys=True), (setting, alone, []))[2].append(name)
    order = list(dict.fromkeys(setting for setting, _, _ in shared.values()))
    rows = [
        (row[0], _owners(names, list(kinds)), *row[1:])
        for _, alone, names in sorted(shared.values(), key=lambda entry: order.index(entry[0]))
        for row in _rows(alone)
    ]
    yield _table(("setting", "of", "type and range", "default", "meaning"), rows)


def list_settings(schema: Schema) -> Iterator[list[str]]:
    """Name, type and range, default and meaning of each setting, as plain text."""
    for row in _rows(schema):
        yield [cell.replace("`", "").replace("\\", "").replace("&lt;", "<") for cell in row]


def _owners(names: list[str], kinds: list[str]) -> str:
    """Name the kinds that have a setting, in as few words as possible."""
    others = [name for name in kinds if name not in names]
    if not others:
        return "all"
    shorter = len(others) < len(names)
    listed = ", ".join(f"`{name}`" for name in (others if shorter else names))
    return f"all but {listed}" if shorter else listed


def _rows(schema: Schema, above: str = "") -> Iterator[tuple[str, ...]]:
    """A row for each property, and for those of inner objects."""
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in schema.get("required", []) else "–"
        if "default" in field:
            default = f"`{_typed(field['default'])}`"
        yield f"`{above}{name}`", type_in_words(field), default, _text(field.get("description", "–"))
        for part in (field, *field.get("anyOf", [])):
            yield from _rows(part, f"{above}{name}.")
            yield from _rows(part.get("items", {}), f"{above}{name}[].")


def type_in_words(schema: Schema) -> str:
    """Type and range of a value."""
    text = describe_schema(schema, lambda value: f"`{_typed(value)}`")
    return _cell(text).replace("][", "]\\[")  # two brackets of a pattern would be a link


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _text(text: str) -> str:
    return _cell(text).replace("<", "&lt;")  # <class> would be read as HTML


def _code(value: Any) -> str:
    """A value as it is written in a config file, on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    return f"`{_cell(written.strip())}`"


def _typed(value: Any) -> str:
    """A value as one would type it."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
