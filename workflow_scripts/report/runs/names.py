"""Readable names for data sets, noises and partitions, made from their specs. Without a spec the id is used."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from string import Formatter
from typing import Any

from pydantic.fields import FieldInfo

from fednoise_core.data import SOURCES
from fednoise_core.data.settings import load_source
from fednoise_core.io import canonical_json
from fednoise_core.noise import registry as noise_registry
from fednoise_core.noise.registry import NOISES
from fednoise_core.partition.registry import PARTITIONS, shared_settings
from fednoise_core.settings.declare import Shown, model_of, settings_of, with_defaults
from fednoise_core.settings.functions import resolve_kind
from fednoise_core.settings.train import Train
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.cells import PARTS
from workflow_scripts.report.text.escape import one_line

UNNAMED = ("kind", "label", "text", "rate")  # keys of a spec that are already a part of its name


def describe_spec(spec: Mapping[str, Any], fallback: str, varying: Collection[str] = ()) -> str:
    """A data set, noise or partition in words: `{"kind": "symmetric", "rate": 0.4}` is "40 % of labels wrong".

    Args:
        spec: Its settings. A `label` wins.
        fallback: The words of a data set without a name of its own.
        varying: Settings that are named even at their default, since other specs of the kind have other values.
    """
    if spec.get("label"):
        return one_line(str(spec["label"]))
    if not spec.get("kind"):
        return _describe_dataset(spec) or fallback
    name, in_name = _format_name(spec)
    parts, fields = [name], _declared_settings(spec)
    if spec.get("rate") is not None and "rate" not in in_name:
        parts[0] += f" {_format_rate(spec['rate'])}"
    defaults = {key: fields[key].get_default() for key in varying if key in fields}
    for key, value in sorted((defaults | dict(spec)).items()) if defaults else spec.items():
        look = _find_shown(fields, key)
        usual = key in fields and key not in varying and fields[key].get_default() == value
        if key in (*UNNAMED, *in_name) or usual or not look.in_headings or not _is_short(value):
            continue
        if isinstance(value, str) and not look.display_name:
            parts[0] += f" {value}"
        else:
            parts.append(_describe_value(key, value, look))
    return ", ".join(parts)


def _describe_dataset(spec: Mapping[str, Any]) -> str:
    """Describe a data set whose source has its own name, for instance "CIFAR-10N, 6,000 images".

    The selection of images and the number of public images are not mentioned.
    """
    name, part = _format_name(spec)[0], spec.get("subset")
    size = part.get("train") if isinstance(part, Mapping) else None
    return f"{name}, {size:,} images" if name and size else name


def _find_owners(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """Find the declarations of a data set's, noise's or partition's settings, its own first. () for unknown kinds."""
    kind = spec.get("kind")
    if kind in NOISES:
        return resolve_kind(spec, NOISES, "noise"), noise_registry.Shared
    if kind in PARTITIONS:
        return resolve_kind(spec, PARTITIONS, "partition"), shared_settings(str(kind))
    return (load_source(spec["source"]),) if spec.get("source") in SOURCES else ()


def _declared_settings(spec: Mapping[str, Any]) -> Mapping[str, FieldInfo]:
    owners = _find_owners(spec)
    return model_of(*owners).model_fields if owners else {}


def _find_shown(fields: Mapping[str, FieldInfo], key: str) -> Shown:
    """Find how headings show a setting."""
    declared = fields[key].metadata if key in fields else ()
    return next((entry for entry in declared if isinstance(entry, Shown)), Shown())


def _format_name(spec: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Format the name of a data set, a noise or a partition, and list the settings that this name contains."""
    owners, fields = _find_owners(spec), _declared_settings(spec)
    name = str(owners[0].display_name) if owners else ""
    in_name = _named_settings(name)
    values = with_defaults(model_of(*owners), spec) if owners else {}
    if "rate" in in_name and "rate" not in spec:
        in_name, name = in_name - {"rate"}, re.sub(r"\{rate\}( of)? ?", "", name)
    if not in_name <= values.keys():  # the rest of the name needs settings that are missing
        name = name.split(",")[0]
        in_name = _named_settings(name)
    if not name or not in_name <= values.keys():
        return str(spec.get("kind", "")).rpartition(":")[2].replace("_", " "), set()
    texts = {key: _value_words(values[key], _find_shown(fields, key)) for key in in_name}
    return name.format_map(texts | ({"rate": _format_rate(values["rate"])} if "rate" in in_name else {})), in_name


def _named_settings(name: str) -> set[str]:
    return {key for _, key, *_ in Formatter().parse(name) if key}


def _value_words(value: Any, look: Shown) -> str:
    text = look.display_name.get(value) if isinstance(look.display_name, Mapping) else None
    return _format_setting_value(value) if text is None else text


def _describe_value(key: str, value: Any, look: Shown) -> str:
    """A setting in words: "overlap", "no overlap", "α = 0.1"."""
    if isinstance(look.display_name, Mapping):
        return _value_words(value, look)
    if isinstance(value, bool):
        return key.replace("_", " ") if value else f"no {key.replace('_', ' ')}"
    name = _name_symbol(key)
    template = look.display_name or (f"{name} = {{}}" if len(name) == 1 else f"{name} {{}}")
    return template.format(_format_setting_value(value))


def _name_symbol(key: str) -> str:
    """Write the name of a setting in words. A setting named after a Greek letter is shown as the letter."""
    try:
        return unicodedata.lookup(f"GREEK SMALL LETTER {key}")
    except KeyError:
        return key.replace("_", " ")


def _is_short(value: Any) -> bool:
    """Return True if a value is short enough for a heading."""
    return value is not None and not isinstance(value, list | dict)


def disambiguate_specs(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Words for specs, different for different ids.

    Args:
        specs: Id -> settings.

    Returns:
        Id -> words. Equal words are extended by the settings that differ, or by the id.
    """
    varying = _find_varying(specs.values())
    labels = {name: describe_spec(spec, name, varying.get(spec.get("kind"), ())) for name, spec in specs.items()}
    for same in _group_equal(labels):
        values = {key: {canonical_json(specs[name].get(key)) for name in same} for name in same for key in specs[name]}
        for name in same:
            differing = {key: specs[name][key] for key in sorted(values) if len(values[key]) > 1 and key in specs[name]}
            fields = _declared_settings(specs[name])
            additions = [
                _describe_value(key, value, _find_shown(fields, key))
                for key, value in differing.items()
                if _is_short(value)
            ]
            labels[name] = ", ".join(filter(None, [labels[name], *additions]))
    for name in [name for same in _group_equal(labels) for name in same]:
        labels[name] += f" ({name})"
    return labels if not _group_equal(labels) else {name: f"{label} ({name})" for name, label in labels.items()}


def _find_varying(specs: Iterable[Mapping[str, Any]]) -> dict[Any, set[str]]:
    """Kind -> the settings in which specs of this kind differ, defaults included."""
    values: dict[Any, dict[str, set[str]]] = {}
    for spec in specs:
        if owners := _find_owners(spec):
            for key, value in with_defaults(model_of(*owners), spec).items():
                values.setdefault(spec.get("kind"), {}).setdefault(key, set()).add(canonical_json(value))
    return {kind: {key for key, seen in keys.items() if len(seen) > 1} for kind, keys in values.items()}


def label_without_rate(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Words of noises that leave out the rate.

    Args:
        specs: Id -> settings.

    Returns:
        Id -> words. Noises that differ only in their rate share their words, and so do those of a kind without rate.
    """
    stripped = {name: {key: value for key, value in spec.items() if key != "rate"} for name, spec in specs.items()}
    stripped = {name: spec if "rate" in specs[name] else {"kind": spec.get("kind")} for name, spec in stripped.items()}
    first: dict[str, str] = {}
    for name, spec in stripped.items():
        first.setdefault(canonical_json(spec), name)
    labels = disambiguate_specs({name: stripped[name] for name in first.values()})
    return {name: labels[first[canonical_json(spec)]] for name, spec in stripped.items()}


def _group_equal(labels: Mapping[str, str]) -> list[list[str]]:
    """Groups of ids that have the same words."""
    groups: dict[str, list[str]] = {}
    for name, label in labels.items():
        groups.setdefault(label, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


class Names:
    """Unique labels of the parts of settings. Only parts that vary are in a setting's title.

    settings: each setting with the specs of its parts, by "dataset", "noise", "partition".
    """

    def __init__(self, settings: Iterable[tuple[Setting, Mapping[str, Any]]]) -> None:
        specs: tuple[dict[str, Mapping[str, Any]], ...] = ({}, {}, {})
        for setting, parts in settings:
            for by_id, key, part in zip(specs, PARTS, setting, strict=True):
                by_id.setdefault(part, parts.get(key) or {})
        self.parts = tuple(disambiguate_specs(by_id) for by_id in specs)

    @classmethod
    def of_runs(cls, runs: Iterable[RecordedRun]) -> Names:
        """The names of the runs' settings."""
        return cls((run.listed.setting, run.spec) for run in runs)

    def of(self, setting: Setting) -> tuple[str, str, str]:
        """(data set, noise, partition) in words."""
        first, second, third = (names.get(part, part) for names, part in zip(self.parts, setting, strict=True))
        return first, second, third

    def title(self, setting: Setting) -> str:
        """The parts that differ between the settings, or all parts if there is only one setting."""
        return self._join_parts(setting, True) or self._join_parts(setting, False)

    def common(self, setting: Setting) -> str:
        """The parts that do not vary, for a caption."""
        return self._join_parts(setting, False) if self._join_parts(setting, True) else ""

    def _join_parts(self, setting: Setting, varying: bool) -> str:
        pairs = zip(self.of(setting), self.parts, strict=True)
        return " · ".join(word for word, names in pairs if (len(names) > 1) == varying)


def _format_setting_value(value: float) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}".replace("-", "−")


def _format_rate(value: float) -> str:
    return f"{100 * value:.4g} %"


def field_words(field: str) -> str:
    """A swept setting in words: "train.batch" -> "batch size"."""
    key = field.split(".")[-1]
    look = _find_shown(settings_of(Train) if field.startswith("train.") else {}, key)
    return str(look.display_name) or _name_symbol(key)
