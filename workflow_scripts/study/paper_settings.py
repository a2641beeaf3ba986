"""Settings on the page of a paper: their sources, the changes of the scale, and differences from the paper.

The paper's own file names the source of each setting under `sources`: keys, joined by dots → "paper", "code" or "our
choice", or several of these with commas, and free text after a colon.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fednoise_core.io import canonical_json
from fednoise_core.settings.declare import did_you_mean
from workflow_scripts.config.yaml_file import ConfigPath, deep_merge
from workflow_scripts.study.file_at_scale import AXES
from workflow_scripts.study.grid import StudyGrid

Keys = tuple[str | int, ...]
COMMON = "train"  # all of its settings are shown, even those without a source
ABSENT = object()


def settings_provenance(study: StudyGrid) -> dict[str, Any]:
    """Describe the settings of a paper, their sources, and the changes of the scale.

    Args:
        study: The study of the paper.

    Returns:
        `settings`: rows {part, name, value, says, note, scaled}, where `says` is as in `sources`, and `scaled` is the
        value at the present scale, "" where it is the same, "–" where the scale has no such block of the grid.
        `changes`: rows {name, value, scaled} of the settings that the scale changes.
        `absent`: Missing data sets.
        `methods`: Names of the methods that are compared.
        `citation`: Title, authors and publication of the paper.
        `scale_text`: A sentence on the parts that the scale keeps and leaves out.
        `why`: Table → id of a claim → reason.
    """
    rows = read_sources(study)
    for key in study.full[COMMON]:
        rows.setdefault((COMMON, key), "")
    first = list(study.full)
    order = sorted(rows, key=lambda keys: (first.index(str(keys[0])), *_item_order(keys)))
    return {
        "settings": [_setting_row(study, keys, rows[keys]) for keys in order],
        "changes": _scale_changes(study),
        "absent": list(study.absent),
        "methods": sorted({str(run.spec["method"]["name"]) for run in study.runs}),
        "citation": study.data.get("paper", {}),
        "scale_text": study.data.get("scale_text", ""),
        "why": study.data.get("why", {}),
    }


def read_sources(study: StudyGrid) -> dict[Keys, str]:
    """Read the sources of settings.

    Args:
        study: The study.

    Returns:
        Keys → the text under `sources`.

    Raises:
        SpecError: The study does not have a key of `sources`.
    """
    place, sources = ConfigPath(study.project.study_file(study.name)) / "sources", dict[Keys, str]()
    for text, source in study.full.get("sources", {}).items():
        keys = tuple(int(key) if key.isdecimal() else key for key in text.split("."))
        if _value_at(study.full, keys) is ABSENT:
            settings = [".".join(map(str, leaf)) for leaf, _ in _iter_leaves(study.full)]
            raise (place / text).error(
                "expected the keys of a setting of this study, joined by dots"
                f"{did_you_mean(text, settings, or_all=False)}"
            )
        sources[keys] = source
    return sources


def _setting_row(study: StudyGrid, keys: Keys, source: str) -> dict[str, str]:
    value, scaled = _value_at(study.full, keys), _scaled_value(study, keys)
    part, name = str(keys[0]), keys[1:]
    if part == "grid":
        block = study.full["grid"][keys[1]]
        part, name, value = _block_title(block), keys[2:], value if keys[2:] else _block_contents(block)
    elif part in ("tables", "figures"):
        part, name = str(study.full[part][keys[1]].get("title", keys[1])).split(":")[0], keys[2:]
    says, _, note = source.partition(": ")
    same = study.data is study.full or (scaled is not ABSENT and canonical_json(scaled) == canonical_json(value))
    return {
        "part": part,
        "name": ".".join(map(str, name)),
        "value": _format_value(value),
        "says": says,
        "note": note,
        "scaled": "" if same else _format_value(scaled),
    }


def _scaled_value(study: StudyGrid, keys: Keys) -> Any:
    """Return the value at the present scale. ABSENT if the scale has its own grid, which lacks the setting."""
    if keys[0] != "grid":
        return _value_at(study.data, keys)
    if study.data["grid"] != study.full["grid"] or len(keys) < 3:
        return ABSENT
    value = _value_at(study.data, keys)
    if keys[2] == "train":
        return _value_at(study.train_settings(int(keys[1])), keys[3:]) if keys[3:] else ABSENT
    if keys[2:] == ("settings",):
        over = study.data.get("settings", {})
        return {name: {**settings, **over.get(name, {})} for name, settings in value.items()}
    return value


def _value_at(data: Any, keys: Keys) -> Any:
    for key in keys:
        listed = isinstance(data, list) and isinstance(key, int) and key < len(data)
        if not listed and not (isinstance(data, Mapping) and key in data):
            return ABSENT
        data = data[key]
    return data


def _scale_changes(study: StudyGrid) -> list[dict[str, str]]:
    """List every value of the paper that the scale replaces."""
    if study.data is study.full:
        return []
    scaled = study.full.get("scales", {}).get(study.project.scale, {})
    over = deep_merge(study.project.overlay, scaled)
    if scaled.get("seeds"):
        over["seeds"] = scaled["seeds"]
    changes = []
    told_apart = ("grid", "dataset_substitutes", "scale_text", "void", "page", "why")
    for keys, value in _iter_leaves({key: part for key, part in over.items() if key not in told_apart}):
        before = _value_at(study.full, keys)
        if before is ABSENT or canonical_json(before) != canonical_json(value):
            by_block = before is ABSENT and any(_value_at(block, keys) is not ABSENT for block in study.full["grid"])
            text = "by block" if by_block else _format_value(before)
            changes.append({"name": ".".join(map(str, keys)), "value": text, "scaled": _format_value(value)})
    changes += [
        {"name": "data", "value": name, "scaled": substitute} for name, substitute in study.dataset_substitutes.items()
    ]
    if scaled.get("grid"):
        grids = (study.full["grid"], study.data["grid"])
        cells = [{cell for block in grid for cell in product(*(block[axis] for axis in AXES))} for grid in grids]
        before, after = (f"{len(cell_set):,} cells" for cell_set in cells)
        changes.append({"name": "grid", "value": before, "scaled": after})
    return changes


def _iter_leaves(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield settings with the keys that lead to them.

    A mapping with the key `name` or `kind` counts as one setting.
    """
    if isinstance(value, Mapping) and not {"name", "kind"} & value.keys():
        for key, part in value.items():
            yield from _iter_leaves(part, (*keys, key))
    else:
        yield keys, value


def _block_title(block: Mapping[str, Any]) -> str:
    """Name a block of the grid by its data sets, and by its noise if it has only one."""
    noises = block["noises"] if len(block["noises"]) == 1 else []
    return " · ".join(", ".join(part) for part in (block["datasets"], noises) if part)


def _block_contents(block: Mapping[str, Any]) -> str:
    """Describe a block of the grid besides its settings."""
    return " · ".join(", ".join(block[key]) for key in ("noises", "partitions", "methods"))


def _format_value(value: Any) -> str:
    """Format a value as one line. A group of definitions is shown by its ids."""
    if value is ABSENT:
        return "–"
    if isinstance(value, Mapping):
        if len(value) > 3 and all(isinstance(part, Mapping) for part in value.values()):
            return ", ".join(map(str, value))
        return ", ".join(f"{key}: {_format_item(part)}" for key, part in value.items() if key not in ("label", "title"))
    return ", ".join(map(_format_item, value)) if isinstance(value, list) else _format_item(value)


def _format_item(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{_format_value(value)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_item, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _item_order(keys: Keys) -> tuple[tuple[int, int], ...]:
    """Sorts a list's items by number, and leaves names in the order of the file (sorting is stable)."""
    return tuple((key, 0) if isinstance(key, int) else (0, 0) for key in keys[1:2])
