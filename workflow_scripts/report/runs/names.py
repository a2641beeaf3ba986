"""Readable names for data sets, noises and partitions, made from their specs; the id where a spec says nothing."""

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

UNNAMED = ("kind", "label", "text", "rate")  # of a spec: they are its name, or stand behind it


def describe_spec(spec: Mapping[str, Any], fallback: str, varying: Collection[str] = ()) -> str:
    """A data set, noise or partition in words: `{"kind": "symmetric", "rate": 0.4}` is "40 % of labels wrong".

    Args:
        spec: Its settings. A `label` wins.
        fallback: The words of a data set without a name of its own.
        varying: Settings that are named even where they have their default, since others of the kind differ in them.
    """
    if spec.get("label"):
        return one_line(str(spec["label"]))
    if not spec.get("kind"):
        return _describe_dataset(spec) or fallback
    name, said = _format_name(spec)
    words, fields = [name], _declared_settings(spec)
    if spec.get("rate") is not None and "rate" not in said:
        words[0] += f" {_format_rate(spec['rate'])}"
    defaults = {key: fields[key].get_default() for key in varying if key in fields}
    for key, value in sorted((defaults | dict(spec)).items()) if defaults else spec.items():
        shown = _find_shown(fields, key)
        usual = key in fields and key not in varying and fields[key].get_default() == value
        if key in (*UNNAMED, *said) or usual or not shown.in_headings or not _is_short(value):
            continue
        if isinstance(value, str) and not shown.display_name:
            words[0] += f" {value}"
        else:
            words.append(_describe_value(key, value, shown))
    return ", ".join(words)


def _describe_dataset(spec: Mapping[str, Any]) -> str:
    """For instance "CIFAR-10N, 6,000 images", for a source that has a name of its own.

    Which images, and how many are public, is not part of it.
    """
    name, part = _format_name(spec)[0], spec.get("subset")
    size = part.get("train") if isinstance(part, Mapping) else None
    return f"{name}, {size:,} images" if name and size else name


def _find_owners(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where the settings of a data set, a noise or a partition are declared, its own first; () if it is not known."""
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
    """How headings show a setting."""
    declared = fields[key].metadata if key in fields else ()
    return next((one for one in declared if isinstance(one, Shown)), Shown())


def _format_name(spec: Mapping[str, Any]) -> tuple[str, set[str]]:
    """The name of a data set, a noise or a partition, and the settings that it says ("3 classes a client")."""
    owners, fields = _find_owners(spec), _declared_settings(spec)
    name = str(owners[0].display_name) if owners else ""
    said = _named_settings(name)
    given = with_defaults(model_of(*owners), spec) if owners else {}
    if "rate" in said and "rate" not in spec:
        said, name = said - {"rate"}, re.sub(r"\{rate\}( of)? ?", "", name)
    if not said <= given.keys():  # the rest of the name tells what is left out
        name = name.split(",")[0]
        said = _named_settings(name)
    if not name or not said <= given.keys():
        return str(spec.get("kind", "")).replace("_", " "), set()
    words = {key: _value_words(given[key], _find_shown(fields, key)) for key in said}
    return name.format_map(words | ({"rate": _format_rate(given["rate"])} if "rate" in said else {})), said


def _named_settings(name: str) -> set[str]:
    return {key for _, key, *_ in Formatter().parse(name) if key}


def _value_words(value: Any, shown: Shown) -> str:
    words = shown.display_name.get(value) if isinstance(shown.display_name, Mapping) else None
    return _format_setting_value(value) if words is None else words


def _describe_value(key: str, value: Any, shown: Shown) -> str:
    """A setting in words: "overlap", "no overlap", "α = 0.1"."""
    if isinstance(shown.display_name, Mapping):
        return _value_words(value, shown)
    if isinstance(value, bool):
        return key.replace("_", " ") if value else f"no {key.replace('_', ' ')}"
    name = _name_symbol(key)
    words = shown.display_name or (f"{name} = {{}}" if len(name) == 1 else f"{name} {{}}")
    return words.format(_format_setting_value(value))


def _name_symbol(key: str) -> str:
    """The name of a setting in words. One that is called as a Greek letter is shown as the letter."""
    try:
        return unicodedata.lookup(f"GREEK SMALL LETTER {key}")
    except KeyError:
        return key.replace("_", " ")


def _is_short(value: Any) -> bool:
    """Whether a value is short enough for a heading."""
    return value is not None and not isinstance(value, list | dict)


def disambiguate_specs(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Words for specs, different for different ids.

    Args:
        specs: Id -> settings.

    Returns:
        Id -> words. To equal words are added the settings that differ, else the id.
    """
    varying = _find_varying(specs.values())
    words = {name: describe_spec(spec, name, varying.get(spec.get("kind"), ())) for name, spec in specs.items()}
    for same in _group_equal(words):
        values = {key: {canonical_json(specs[name].get(key)) for name in same} for name in same for key in specs[name]}
        for name in same:
            told = {key: specs[name][key] for key in sorted(values) if len(values[key]) > 1 and key in specs[name]}
            fields = _declared_settings(specs[name])
            said = [
                _describe_value(key, value, _find_shown(fields, key)) for key, value in told.items() if _is_short(value)
            ]
            words[name] = ", ".join(filter(None, [words[name], *said]))
    for name in [name for same in _group_equal(words) for name in same]:
        words[name] += f" ({name})"
    return words if not _group_equal(words) else {name: f"{shown} ({name})" for name, shown in words.items()}


def _find_varying(specs: Iterable[Mapping[str, Any]]) -> dict[Any, set[str]]:
    """Kind -> the settings in which specs of this kind differ, defaults included."""
    values: dict[Any, dict[str, set[str]]] = {}
    for spec in specs:
        if owners := _find_owners(spec):
            for key, value in with_defaults(model_of(*owners), spec).items():
                values.setdefault(spec.get("kind"), {}).setdefault(key, set()).add(canonical_json(value))
    return {kind: {key for key, found in keys.items() if len(found) > 1} for kind, keys in values.items()}


def label_without_rate(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Words of noises that leave out the rate.

    Args:
        specs: Id -> settings.

    Returns:
        Id -> words, shared by the noises that differ in their rate alone, and by those of a kind without a rate.
    """
    rest = {name: {key: value for key, value in spec.items() if key != "rate"} for name, spec in specs.items()}
    rest = {name: spec if "rate" in specs[name] else {"kind": spec.get("kind")} for name, spec in rest.items()}
    first: dict[str, str] = {}
    for name, spec in rest.items():
        first.setdefault(canonical_json(spec), name)
    words = disambiguate_specs({name: rest[name] for name in first.values()})
    return {name: words[first[canonical_json(spec)]] for name, spec in rest.items()}


def _group_equal(words: Mapping[str, str]) -> list[list[str]]:
    """Groups of ids that have the same words."""
    groups: dict[str, list[str]] = {}
    for name, shown in words.items():
        groups.setdefault(shown, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


class Names:
    """Labels of the parts of settings, unique among those found; only parts that vary enter a setting's title.

    found: each setting with the specs of its parts, by "dataset", "noise", "partition".
    """

    def __init__(self, found: Iterable[tuple[Setting, Mapping[str, Any]]]) -> None:
        specs: tuple[dict[str, Mapping[str, Any]], ...] = ({}, {}, {})
        for setting, parts in found:
            for known, key, part in zip(specs, PARTS, setting, strict=True):
                known.setdefault(part, parts.get(key) or {})
        self.parts = tuple(disambiguate_specs(known) for known in specs)

    @classmethod
    def of_runs(cls, runs: Iterable[RecordedRun]) -> Names:
        """The names of the runs' settings."""
        return cls((run.listed.setting, run.spec) for run in runs)

    def of(self, setting: Setting) -> tuple[str, str, str]:
        """(data set, noise, partition) in words."""
        first, second, third = (names.get(part, part) for names, part in zip(self.parts, setting, strict=True))
        return first, second, third

    def title(self, setting: Setting) -> str:
        """The parts that differ between the settings at hand, or all of them if there is one setting only."""
        return self._join_parts(setting, True) or self._join_parts(setting, False)

    def common(self, setting: Setting) -> str:
        """The parts that do not vary: said once, in a caption."""
        return self._join_parts(setting, False) if self._join_parts(setting, True) else ""

    def _join_parts(self, setting: Setting, varying: bool) -> str:
        words = zip(self.of(setting), self.parts, strict=True)
        return " · ".join(word for word, names in words if (len(names) > 1) == varying)


def _format_setting_value(value: float) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}".replace("-", "−")


def _format_rate(value: float) -> str:
    return f"{100 * value:.4g} %"


def field_words(field: str) -> str:
    """A swept setting in words: "train.batch" -> "batch size"."""
    key = field.split(".")[-1]
    shown = _find_shown(settings_of(Train) if field.startswith("train.") else {}, key)
    return str(shown.display_name) or _name_symbol(key)
