"""Check that the valid parts of a run are compatible: its data set, noise, partition, method and nets."""

from collections.abc import Mapping
from typing import Any

from fednoise_core.io import SpecError, canonical_json
from fednoise_core.noise import registry as noises
from fednoise_core.partition import registry as partitions
from workflow_scripts.config.nets import net_code, net_settings
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import ConfigPath
from workflow_scripts.provenance.step_code import user_module_path
from workflow_scripts.study.file_at_scale import Defined

ORACLE = "oracle_nominal"  # a method's field with this value gets the noise's nominal rate

LABELS_OF_DATA = ("given", "human")  # kinds of noise that are labels of the data set


def check_setting(project: Project, dataset: str, noise: Defined, partition: Defined, place: ConfigPath) -> None:
    """Check that a data set, a noise and a partition are compatible.

    Args:
        project: The project.
        dataset: The id of a data set.
        noise: A noise.
        partition: A partition.
        place: The block of the grid that names them.

    Raises:
        SpecError: They are not compatible.
    """
    (noise_id, noise_spec, noise_place), (partition_id, partition_spec, partition_place) = noise, partition
    for spec, where in ((noise_spec, noise_place), (partition_spec, partition_place)):
        if ":" in spec["kind"]:
            _find_own_code(project, spec["kind"], where / "kind")
    if noises.needs_partition(noise_spec) and partitions.needs_labels(partition_spec):
        raise place.error(
            f"noise {noise_id!r} needs the partition and partition {partition_id!r} needs the noisy labels: "
            f"one must come first (for example `labels: clean` in the partition)"
        )
    donor = noises.needs_donor(noise_spec)
    if donor is not None:
        project.find_dataset(donor, noise_place / "donor")
    samples = project.facts(dataset)[0]
    if noise_spec["kind"] in LABELS_OF_DATA and "given" in project.missing_inputs(dataset):
        settings = project.schemas.load("dataset")[project.datasets[dataset]["source"]]["properties"]
        cure = "choose another noise" + (", or write `human: true` in the data set's settings" * ("human" in settings))
        raise place.error(f"noise {noise_id!r}: data set {dataset!r} has no labels as collected; {cure}")
    if partition_spec["kind"] == "natural" and "client_ids" in project.missing_inputs(dataset):
        raise place.error(
            f"partition {partition_id!r}: data set {dataset!r} has no client ids; choose another partition"
        )
    clients = partition_spec.get("clients", 0)
    if samples is not None and clients > samples:
        raise (partition_place / "clients").error(
            f"expected at most {samples}, the training samples of {dataset!r}, got {clients}"
        )


def check_method(
    project: Project, fields: Mapping[str, Any], train: Mapping[str, Any], dataset: str, place: ConfigPath
) -> None:
    """Check that a run's other settings meet a method's requirements, which its schema lists.

    Args:
        project: The project.
        fields: The method's settings.
        train: The training settings.
        dataset: The id of a data set.
        place: Where the method is defined.

    Raises:
        SpecError: The method cannot run with them.
    """
    facts = project.schemas.load_kind("method", fields["name"])
    if ":" in fields["name"]:
        _find_own_code(project, fields["name"], place / "name")
    nets = train.get("net")
    if isinstance(nets, list) and len({canonical_json(net) for net in nets}) > 1 and not facts.get("several_nets"):
        raise place.error(f"{fields['name']} has one model for all clients, but train.net lists several nets")
    if facts.get("needs_public") and not project.datasets[dataset].get("public"):
        raise place.error(f"{fields['name']} needs public images: give {dataset!r} a `public` part")
    for key, values in facts.get("needs_train", {}).items():
        setting = train.get(key, project.schemas.load("train")["properties"][key]["default"])
        if setting not in values:
            raise (place / "train" / key).error(
                f"expected {' or '.join(map(str, values))} for {fields['name']}, got {setting}"
            )
    classes = project.facts(dataset)[1]
    for key, instead in facts.get("above_chance", {}).items():
        value = fields.get(key, facts["properties"][key]["default"])
        if classes and fields.get(instead) is None and value <= 1 / classes:
            raise (place / key).error(
                f"expected a value above 1/{classes}, which is chance for {classes} classes, got {value}"
            )


def check_nets(project: Project, train: Mapping[str, Any], dataset: str, place: ConfigPath) -> None:
    """Check that the nets accept the data set's image size, and that the files of the user's own nets exist.

    Args:
        project: The project.
        train: The training settings.
        dataset: The id of a data set.
        place: Where the nets are named.

    Raises:
        SpecError: A net does not accept the image size, or a file is missing.
    """
    for factory in (name for name in net_code(train) if ":" in name):
        _find_own_code(project, factory, place)
    facts, side = project.schemas.load("net"), project.facts(dataset)[2]
    for spec in net_settings(train):
        name = spec["name"]
        if side is not None and train.get("batch") == 1 and side < facts[name].get("single_side", 1):
            cure = "Take `batch: 2` or more, larger images, or a net without batch norm"
            raise place.error(
                f"{name} cannot train on single images of {side} pixels a side (train.batch is 1). {cure}"
            )
        if side is not None and side < (least := facts[name]["smallest"]):
            raise place.error(f"{name} needs images of {least} pixels a side or more; {dataset!r} has {side}")
        stem = facts[name]["properties"].get("stem", {})
        if spec.get("weights") == "imagenet" and spec.get("stem", stem.get("default")) != "7x7":
            raise place.error(f"{name}: weights of ImageNet need `stem: 7x7`")


def _find_own_code(project: Project, named: str, place: ConfigPath) -> None:
    """Check that a class or function "module:name" is in the project's folder."""
    try:
        user_module_path(project.folder, named)
    except SpecError as error:
        raise place.error(str(error)) from error


def check_sampling(train: Mapping[str, Any], noise: Defined, place: ConfigPath) -> None:
    """Check that `sampling: continued` has a generator from which it can draw cohorts.

    Args:
        train: The training settings.
        noise: The noise, which may store its generator in the labels artifact.
        place: Where the training settings stand.

    Raises:
        SpecError: The noise stores no generator.
    """
    if train.get("sampling") == "continued" and not noises.keeps_generator(noise[1]):
        raise (place / "sampling").error(
            f"'continued' needs noise that leaves its generator in the labels; noise {noise[0]!r} leaves none"
        )


def assumes_true_rate(project: Project, dataset: str, noise: Defined, method: Mapping[str, Any]) -> bool:
    """Return True if a method's own noise rate equals that of the noise.

    The method then has the same knowledge as an oracle method.

    Args:
        project: The project.
        dataset: The id of a data set.
        noise: The noise.
        method: The method's settings.
    """
    settings = project.schemas.load_kind("method", method["name"])["properties"].items()
    rates = [
        method.get(key, setting.get("default"))
        for key, setting in settings
        for option in setting.get("anyOf", ())
        if option.get("const") == ORACLE and method.get(option.get("overridden_by")) is None
    ]
    rate = noises.oracle_rate(noise[1], project.facts(dataset)[1]) if rates else None
    return any(isinstance(value, int | float) and abs(value - rate) < 1e-9 for value in rates) if rate else False


def oracle_rate(project: Project, dataset: str, noise: Defined, place: ConfigPath) -> float:
    """Find the rate of a noise for oracle methods.

    Args:
        project: The project.
        dataset: The id of a data set.
        noise: The noise.
        place: What asks for the rate.

    Returns:
        The nominal rate. For human labels, the share of wrong labels.

    Raises:
        SpecError: No rate is known.
    """
    rate = noises.oracle_rate(noise[1], project.facts(dataset)[1])
    if rate is None:
        raise place.error(f"{ORACLE}: no nominal rate is known for noise {noise[0]!r} on {dataset!r}. Give a number")
    return rate
