"""Readable names for data sets, noises and partitions, made from their specs; the id where a spec says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

from fednoise_core.data import SOURCES
from fednoise_core.io import canonical_json
from fednoise_core.noise.registry import NOISES
from fednoise_core.partition.registry import PARTITIONS
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.text.escape import one_line
from fednoise_core.settings.functions import resolve_kind

FIELDS = {"batch": "batch size", "lr": "learning rate", "epochs": "local epochs", "fraction": "clients a round, share"}
SAID = {  # settings in words; "{}" is the value
    "alpha": "α = {}",
    "p": "p = {}",
    "q": "q = {}",
    "rho": "ρ = {}",
    "tau": "τ = {}",
    "clients": "{} clients",
    "donor": "from {}",
    "diag": "{} diagonal",
    "within_superclass": "within {} superclasses",
    "scale": "pixels {}",
}
VALUES = {  # values in words; "" where the kind's own name says it
    ("mode", "nonuniform"): "non-uniform",
    ("mode", "fedlsr"): "",
    ("mode", "shards"): "",
    ("mode", "disjoint_classes"): ", dealt evenly",  # with a comma: not one word with the kind
    ("flip", "symmetric"): "",
    ("offset", 1): "",
    ("offset", -1): "to the class before",
    ("donor", "public"): "",
    ("scale", "raw"): "",
    ("scale", "unit"): "pixels from 0 to 1",
    ("within_superclass", "consecutive5"): "within blocks of five classes",
}

# How a draw is made or repaired, not what the setting is: such keys would only lengthen a column head. They are said
# where nothing else tells two settings apart (`disambiguate_specs`).
TECHNICAL = {
    "kind",
    "source",
    "label",
    "text",
    "rate",
    "sampling",
    "rounding",
    "noise_seed",
    "seed",
    "clients",
    "validation",
    "max_tries",
    "min_size",
    "file",
    "path",
}
USUAL = {"q": 0.5, "spread": 0.05}  # the schema's own values: said in the settings, not in every head

PARTS = ("dataset", "noise", "partition")


def describe_spec(spec: Mapping[str, Any], fallback: str) -> str:
    """A data set, noise or partition in words: `{"kind": "symmetric", "rate": 0.4}` is "symmetric 0.4".

    Args:
        spec: Its settings. A `label` wins.
        fallback: The words of a data set without a name of its own.
    """
    if spec.get("label"):
        return one_line(str(spec["label"]))
    kind = str(spec.get("kind") or "")
    if not kind:
        return _describe_dataset(spec) or fallback
    if kind in ("none", "clean"):
        return "no noise"
    name, counts = _kind_name(spec, kind)
    words = [name]
    if spec.get("rate") is not None:
        words[0] += f" {_format_setting_value(spec['rate'])}"
    for key, value in spec.items():
        if (
            key in TECHNICAL
            or key in counts
            or (key == "labels" and value in ("noisy", "clean"))  # of a partition; of human noise it is the set's name
            or not _is_short(value)
            or USUAL.get(key) == value
        ):
            continue
        if isinstance(value, str) and key not in SAID:
            words[0] += f" {VALUES.get((key, value), value)}".replace(" ,", ",").rstrip()
        elif text := _describe_value(key, value):
            words.append(text)
    return ", ".join(words)


def _kind_name(spec: Mapping[str, Any], kind: str) -> tuple[str, set[str]]:
    """The name of a noise or a partition, and the settings that it says ("3 classes a client")."""
    name = _display_name(spec, NOISES | PARTITIONS)
    said = {key for _, key, *_ in Formatter().parse(name) if key}
    if not name or not said <= spec.keys():
        return kind.replace("_", " "), set()
    if spec.get("mode") == "shards":
        name = name.replace("classes", "shards")
    return name.format_map({key: _format_setting_value(spec[key]) for key in said}), said


def _describe_dataset(spec: Mapping[str, Any]) -> str:
    """For instance "CIFAR-10N, 6,000 images", for a source that has a name of its own.

    Which images, and how many are public, is not part of it.
    """
    name, part = _display_name(spec, SOURCES, "source"), spec.get("subset")
    name += f"N{' coarse' if spec.get('labels') == 'coarse' else ''}" if name and spec.get("human") is True else ""
    size = part.get("train") if isinstance(part, Mapping) else None
    return f"{name}, {size:,} images" if name and size else name


def _display_name(spec: Mapping[str, Any], registry: Mapping[str, Any], key: str = "kind") -> str:
    """The name that a data set, a noise or a partition has itself; "" without one."""
    return str(resolve_kind(spec, registry, "", key).display_name) if spec.get(key) in registry else ""


def _describe_value(key: str, value: Any) -> str:
    """A setting in words: "overlap", "no overlap", "α = 0.1"."""
    if isinstance(value, bool):
        return key.replace("_", " ") if value else f"no {key.replace('_', ' ')}"
    if (key, value) in VALUES:
        return VALUES[key, value]
    return SAID.get(key, f"{key.replace('_', ' ')} {{}}").format(_format_setting_value(value))


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
    words = {name: describe_spec(spec, name) for name, spec in specs.items()}
    for same in _group_equal(words):
        values = {key: {canonical_json(specs[name].get(key)) for name in same} for name in same for key in specs[name]}
        for name in same:
            told = {key: specs[name][key] for key in sorted(values) if len(values[key]) > 1 and key in specs[name]}
            said = [_describe_value(key, value) for key, value in told.items() if _is_short(value)]
            words[name] = ", ".join(filter(None, [words[name], *said]))
    for name in [name for same in _group_equal(words) for name in same]:
        words[name] += f" ({name})"
    return words if not _group_equal(words) else {name: f"{shown} ({name})" for name, shown in words.items()}


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
        varies = [len(names) > 1 for names in self.parts]
        words = [word for word, use in zip(self.of(setting), varies, strict=True) if use or not any(varies)]
        return " · ".join(words)

    def common(self, setting: Setting) -> str:
        """The parts that do not vary: said once, in a caption."""
        if not any(len(names) > 1 for names in self.parts):
            return ""
        words = [word for word, names in zip(self.of(setting), self.parts, strict=True) if len(names) == 1]
        return " · ".join(words)


def _format_setting_value(value: float) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}".replace("-", "−")


def field_words(field: str) -> str:
    """A swept setting in words: "train.batch" -> "batch size"."""
    key = field.split(".")[-1]
    return FIELDS.get(key, SAID.get(key, key.replace("_", " ")).removesuffix(" = {}"))
