"""Settings: a mistake is one message that names file and key; grids, overlays and paths are as documented."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fednoise_core.io import SpecError, canonical_json, json_digest
from workflow_scripts.config.nets import net_code
from workflow_scripts.config.project import Project, reserved_names
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.provenance.code_hash import read_modules
from workflow_scripts.provenance.step_code import StepCode
from workflow_scripts.study.study import Study
from workflow_scripts.study.targets import Targets

ROOT = Path(__file__).parents[2]
CONFIG = {"device": "cpu", "scale": "paper", "studies": ["toy"], "data_root": None, "overlay": {}}
STUDY: dict[str, Any] = {
    "title": "Toy",
    "noises": {"mine": {"kind": "symmetric", "rate": 0.3}, "levels": {"kind": "fedcorr", "rho": 0.5, "tau": 0.5}},
    "partitions": {
        "open": {"kind": "openset", "clients": 5, "mode": "uniform"},
        "even": {"kind": "iid", "clients": 5},
    },
    "methods": {"cot": {"name": "coteaching", "forget_rate": "oracle_nominal", "train": {"lr": 0.5}}},
    "train": {"net": "mlp", "rounds": 3, "lr": 0.1},
    "seeds": [0, 1],
    "grid": [{"datasets": ["digits"], "noises": ["mine"], "partitions": ["open"], "methods": ["fedavg", "cot"]}],
    "tables": {"main": {"kind": "accuracy"}},
    "figures": {"curves": {"kind": "curves", "methods": ["cot"]}},
}

Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture
def folder(config_copy: Path) -> Path:
    """A project with the real schemas, catalogue and data sets, and one study."""
    write(config_copy, "config/config.yaml", CONFIG)
    write(config_copy, "config/studies/toy.yaml", STUDY)
    return config_copy


def write(folder: Path, file: str, value: Any) -> None:
    """Write YAML."""
    (folder / file).write_text(yaml.safe_dump(value))


def edited(edit: Edit, base: dict[str, Any] = STUDY) -> dict[str, Any]:
    """A deep copy of the study after `edit`."""
    study = json.loads(json.dumps(base))
    edit(study)
    return study


def project(folder: Path, **config: Any) -> Project:
    """The project with some keys of the config replaced."""
    return Project({**CONFIG, **config}, folder)


HEAD = """from dataclasses import dataclass
from typing import Annotated
from pydantic import Field
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.declare import AlsoAccepts
"""
FROZEN = f"{HEAD}@dataclass(frozen=True, kw_only=True)\nclass It(FedAvg):\n    'It.'\n    "
RATED = f"{FROZEN}rate: Annotated[float | None, AlsoAccepts('oracle_nominal'), Field(description='Rate.')] = None\n"
OWN = {  # module → its text, and the error
    "own_syntax": ("def", "name: 'own_syntax:It': SyntaxError: "),
    "own_zero": ("1 / 0", "name: 'own_zero:It': ZeroDivisionError: division by zero"),
    "own_exit": ("raise SystemExit(3)", "name: 'own_exit:It': SystemExit: 3"),
    "..own": ("", "name: '..own:It': TypeError: "),
    "own_hint": (f"{FROZEN}a: 'Unknown' = 1\n", "name: 'own_hint:It': NameError\\(\"name 'Unknown' is not"),
    "own_plain": (f"{HEAD}class It(FedAvg):\n    'It.'\n", "name: It: write @dataclass"),
    "own_hooks": (f"{FROZEN}def merge(self): ...\n", "name: It: it overrides none of the hooks"),
}


def test_a_method_of_ones_own_is_checked_and_hashed_like_any_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = "contract_methods:Pulled"
    shutil.copy(ROOT / "tests/support/contract_methods.py", folder)
    (folder / "fednoise_core").symlink_to(ROOT / "fednoise_core")

    def planned(spec: dict[str, Any]) -> Any:
        change = {"methods": {"own": spec}, "grid": [{**STUDY["grid"][0], "methods": ["own"]}]}
        write(folder, "config/studies/toy.yaml", {**STUDY, **change, "figures": {}})
        return next(iter(Study(project(folder), "toy").runs))

    monkeypatch.syspath_prepend(folder)
    for module, (text, _) in {**OWN, "own_rated": (RATED, "")}.items():
        (folder / f"{module}.py").write_text(text)
    assert planned({"name": "own_rated:It"}).spec["method"] == {"name": "own_rated:It"}
    assert planned({"name": named, "mu": 0.5}).spec["method"] == {"name": named, "mu": 0.5}
    assert planned({"name": named, "mu": 0.01}).spec["method"] == {"name": named}
    assert "contract_methods.py" in StepCode(folder).step_entries("training_run", method=[named], net=["mlp"])
    for spec, message in (
        ({"name": named, "mu": -1}, r"mu: expected number ≥ 0, got -1"),
        ({"name": named, "nu": 1}, "nu: unknown key; did you mean 'mu'?"),
        ({"name": "contract_methods:Puled"}, "name: .*has no attribute 'Puled'"),
        ({"name": "nowhere:It"}, "name: .*No module named 'nowhere'"),
        ({"name": "json:JSONDecoder"}, "name: .*is not a subclass of"),
        ({"name": "toy:subject"}, "name: .*is not a subclass of"),
        *(({"name": f"{module}:It"}, message) for module, (_, message) in OWN.items()),
    ):
        with pytest.raises(SpecError, match=rf"^config/studies/toy\.yaml: methods\.own\.{message}"):
            planned(spec)
    (folder / "contract_methods.py").unlink()
    with pytest.raises(SpecError, match=r"toy\.yaml: methods\.own\.name: expected a module in the project's folder"):
        planned({"name": named})


OWN_LABELS = """from typing import Annotated
import numpy as np
from pydantic import Field
from fednoise_core.noise.sampling import NoiseResult, noise_model
from fednoise_core.partition.schemes import partition_scheme
@noise_model(example={"step": 1}, nominal_rate=lambda spec, K: 0.25)
def ladder(y, K, rng, *, clients: list, step: Annotated[int, Field(ge=1, description="Step.")] = 1) -> NoiseResult:
    "Labels climb."
    return NoiseResult((y + step) % K, None)
@partition_scheme(example={"clients": 4}, labels="clean")
def strips(labels, C, rng) -> list:
    "Strips."
    return np.array_split(np.arange(len(labels)), C)
def plain(y, K, rng): ...
"""


def test_a_noise_and_a_partition_of_ones_own_are_checked_and_hashed_like_any_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "own_labels.py").write_text(OWN_LABELS)
    (folder / "fednoise_core").symlink_to(ROOT / "fednoise_core")
    monkeypatch.syspath_prepend(folder)

    def planned(noise: dict[str, Any], partition: dict[str, Any]) -> Any:
        change = {"noises": {"own": noise}, "partitions": {"own": partition}, "figures": {}}
        block = {**STUDY["grid"][0], "noises": ["own"], "partitions": ["own"]}
        write(folder, "config/studies/toy.yaml", {**STUDY, **change, "grid": [block]})
        return list(Study(project(folder), "toy").runs)[-1]

    noise, partition = {"kind": "own_labels:ladder"}, {"kind": "own_labels:strips", "clients": 4}
    spec = planned({**noise, "step": 1}, partition).spec
    assert (spec["noise"], spec["partition"]) == (noise, partition)
    assert spec["method"]["forget_rate"] == 0.25  # oracle_nominal
    for family in ("noise", "partition"):
        kind = {"noise": noise, "partition": partition}[family]["kind"]
        assert "own_labels.py" in StepCode(folder).step_entries(family, **{family: [kind]})
    for wrong, message in (
        ({**noise, "step": 0}, r"step: expected integer ≥ 1, got 0"),
        ({**noise, "stepp": 1}, "stepp: unknown key; did you mean 'step'?"),
        ({"kind": "own_labels:plain"}, r"kind: 'own_labels:plain': write @noise_model\(…\) above the function"),
        ({"kind": "own_labels:strips"}, r"kind: 'own_labels:strips': write @noise_model\(…\) above the function"),
        ({"kind": "own_labels:laddr"}, "kind: 'own_labels:laddr': AttributeError"),
        ({"kind": "nowhere:ladder"}, "kind: 'nowhere:ladder': ModuleNotFoundError"),
        ({"kind": "ladder"}, "kind: unknown noise 'ladder'"),
    ):
        with pytest.raises(SpecError, match=rf"^config/studies/toy\.yaml: noises\.own\.{message}"):
            planned(wrong, partition)
    with pytest.raises(
        SpecError, match=r"partitions\.own\.kind: 'own_labels:ladder': write @partition_scheme\(…\) above"
    ):
        planned(noise, {"kind": "own_labels:ladder"})
    (folder / "own_labels.py").unlink()
    with pytest.raises(SpecError, match=r"toy\.yaml: noises\.own\.kind: expected a module in the project's folder"):
        planned(noise, partition)


def test_every_study_of_the_repository_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for config in [{}, *(read_yaml(path) for path in sorted((ROOT / "config/scales").glob("*.yaml")))]:
        scaled = Project({**CONFIG, "studies": ["quick"], **config}, ROOT)
        for name in scaled.study_files:
            assert Study(scaled, name).runs


def test_runs_and_paths(folder: Path) -> None:
    study = Study(project(folder), "toy")
    assert [(run.method, run.seed) for run in study.runs] == [("fedavg", 0), ("fedavg", 1), ("cot", 0), ("cot", 1)]
    run = study.runs[2]
    assert run.folder.startswith("store/runs/digits/symmetric-0.3/openset-5/coteaching/seed0/")
    arrays, labels, split = run.plan.inputs
    assert labels.inputs == (arrays,)  # this noise does not look at clients
    assert split.inputs == (arrays, labels)  # this partition looks at labels
    arrays, labels, split = study.plan_setting("digits", "levels", "even", 7)
    assert labels.inputs == (arrays, split)
    assert split.inputs == (arrays,)
    assert split.folder.startswith("store/partitions/digits/iid-")
    assert study.select_runs({"methods": ["cot"], "seeds": [1]}) == [study.runs[3]]


def test_resolved_spec(folder: Path) -> None:
    study = Study(project(folder), "toy")
    run = study.find_run("digits", "mine", "open", "cot", 1)
    assert run.spec["method"] == {"name": "coteaching", "forget_rate": 0.3}  # the nominal rate of this noise
    assert run.oracle_rate is True
    assert (run.row["name"], run.row["family"], run.row["own"]) == ("coteaching", "selection", False)
    assert run.spec["train"] == {"net": "mlp", "rounds": 3, "lr": 0.5}  # the method's word wins
    assert (run.dataset, run.noise, run.partition, run.method) == ("digits", "mine", "open", "cot")
    assert run.spec["seed"] == 1
    assert study.find_run("digits", "mine", "open", "fedavg", 0).oracle_rate is False
    assert "device" not in canonical_json(run.spec)
    with pytest.raises(SpecError, match=r"toy.yaml: no run digits/mine/even/fedavg/0 in the grid"):
        study.find_run("digits", "mine", "even", "fedavg", 0)


def test_a_block_has_training_settings_of_its_own(folder: Path) -> None:
    """They override the study's; scales and methods override them. Two blocks may not disagree about a run."""

    def edit(data: dict[str, Any]) -> None:
        data["methods"]["own"] = {"name": "fedavg", "train": {"lr": 0.3}}
        block = data["grid"][0] | {"methods": ["fedavg", "own"], "train": {"lr": 0.2, "rounds": 7, "batch": 9}}
        data["grid"], data["tables"], data["figures"] = [block], {}, {}

    write(folder, "config/studies/toy.yaml", edited(edit))
    runs = {run.method: run.spec["train"] for run in Study(project(folder), "toy").runs}
    assert [runs["fedavg"][key] for key in ("lr", "rounds", "batch")] == [0.2, 7, 9]
    assert runs["own"]["lr"] == 0.3
    small = Study(project(folder, scale="smoke", overlay={"train": {"rounds": 2}}), "toy").runs[0].spec["train"]
    assert [small[key] for key in ("lr", "rounds", "batch")] == [0.2, 2, 9]

    def twice(data: dict[str, Any]) -> None:
        edit(data)
        data["grid"].append({**data["grid"][0], "train": {"lr": 0.4}})

    write(folder, "config/studies/toy.yaml", edited(twice))
    with pytest.raises(SpecError, match=r"toy.yaml: grid\[1\].train: another block has digits/.*/fedavg/0 with other"):
        Study(project(folder), "toy")


def test_tuned_settings_are_laid_over_methods_and_default_settings_stand_beside(folder: Path) -> None:
    study = {key: value for key, value in STUDY.items() if key != "figures"} | {"tuned": "mine"}
    block = {**STUDY["grid"][0], "methods": ["fedavg", "fedprox", "gce"], "settings": {"gce": {"q": 0.5}}}
    write(folder, "config/tuned/mine.yaml", {"digits": {"fedprox": {"mu": 0.5, "train": {"lr": 0.3}}}})
    write(folder, "config/studies/toy.yaml", study | {"grid": [block]})
    runs = {(run.method, run.seed): run for run in Study(project(folder), "toy").runs}
    tuned, default = runs["fedprox", 0], runs["fedprox-default", 0]
    assert set(runs) == {
        *((method, seed) for method in ("fedprox", "gce") for seed in (0, 1)),
        *((f"{method}-default", 0) for method in ("fedavg", "fedprox")),  # fedavg was not tuned
    }
    assert (tuned.spec["method"]["mu"], tuned.spec["train"]["lr"]) == (0.5, 0.3)
    assert (default.spec["method"].get("mu"), default.spec["train"].get("lr", 0.1)) == (None, 0.1)
    assert (tuned.label, default.label) == ("FedProx", "FedProx, default settings")
    scales = {"smoke": {"dataset_substitutes": {"digits": "larger"}}}  # which has settings of its own
    study |= {"datasets": {"larger": {"source": "digits", "public": 0}}, "scales": scales}
    write(folder, "config/tuned/mine.yaml", {"digits": {"fedprox": {"mu": 0.5}}, "larger": {"fedavg": {"train": {}}}})
    write(folder, "config/studies/toy.yaml", study | {"grid": [block]})
    small = Study(project(folder, scale="smoke"), "toy")
    assert {run.method for run in small.runs} == {"fedavg", "gce", "fedavg-default", "fedprox-default"}
    assert small.page_metadata()["tuned"] == [("larger", "fedavg", {"train": {}}), ("larger", "gce", {"q": 0.5})]
    write(folder, "config/studies/toy.yaml", study | {"grid": [{**block, "datasets": ["digits", "mnist"]}]})
    with pytest.raises(SpecError, match=r"grid\[0\].datasets: expected one data set, as config/tuned/mine.yaml"):
        Study(project(folder), "toy")


def test_a_scale_changes_options_of_a_blocks_net_and_the_page_tells_them(folder: Path) -> None:
    """A scale's mapping is laid over key by key, with and without settings of the block."""

    def edit(data: dict[str, Any]) -> None:
        data["train"]["net"] = {"name": "resnet10", "width": 8}
        data["scales"] = {"smoke": {"train": {"net": {"width": 4}}}}
        data["grid"].append({**data["grid"][0], "noises": ["levels"], "partitions": ["even"], "train": {"lr": 0.2}})
        data["tables"], data["figures"] = {}, {}

    write(folder, "config/studies/toy.yaml", edited(edit))
    study = Study(project(folder, scale="smoke", overlay={}), "toy")
    nets = [run.spec["train"]["net"] for run in study.runs]
    assert nets == [{"name": "resnet10", "width": 4}] * len(nets)
    (block,) = study.page_metadata()["blocks"]
    assert (block["noises"], block["train"]) == (["levels"], {"lr": 0.2})


def test_a_scale_that_does_not_fit_a_block_is_named_there(folder: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["train"]["net"] = {"name": "resnet10"}
        data["scales"] = {"smoke": {"train": {"net": {"width": 4}}}}
        data["grid"][0]["train"] = {"net": "mlp"}

    write(folder, "config/studies/toy.yaml", edited(edit))
    with pytest.raises(SpecError, match=r"config/studies/toy.yaml at scale smoke: grid\[0\].train.net"):
        Study(project(folder, scale="smoke", overlay={}), "toy")


def test_scale_may_leave_out_what_a_figure_names(folder: Path) -> None:
    overlay = {"grid": [{**STUDY["grid"][0], "methods": ["fedavg"]}]}
    write(folder, "config/studies/toy.yaml", edited(lambda s: s.update(scales={"smoke": overlay})))
    assert list(Study(project(folder), "toy").figures) == ["curves"]
    study = Study(project(folder, scale="smoke"), "toy")
    assert study.figures == {}  # its only method has no run at this scale
    assert list(study.tables) == ["main"]


def at(*keys: Any, to: Any) -> Edit:
    """An edit that sets the value at `keys`."""

    def edit(study: dict[str, Any]) -> None:
        for key in keys[:-1]:
            study = study[key]
        study[keys[-1]] = to

    return edit


BAD = {
    "unknown key": (at("train", "ruonds", to=3), "toy.yaml: train.ruonds: unknown key; did you mean 'rounds'?"),
    "unknown top key": (at("metods", to={}), "toy.yaml: metods: unknown key; did you mean 'methods'?"),
    "wrong type": (at("train", "rounds", to="three"), "toy.yaml: train.rounds: "),
    "unknown page": (
        at("scales", to={"smoke": {"page": "smok"}}),
        "scales.smoke.page: unknown scale; did you mean 'smoke'?",
    ),
    "missing key": (lambda s: s.pop("grid"), "toy.yaml: the key 'grid' is missing"),
    "no number": (at("train", "lr", to=float("nan")), "toy.yaml: train.lr: expected a finite number, got nan"),
    "keep below chance": (
        at("methods", "cot", to={"name": "feddpcont", "keep": 0.1}),
        "toy.yaml: methods.cot.keep: expected a value above 1/10, which is chance for 10 classes, got 0.1",
    ),
    "several nets for one model": (
        at("methods", "cot", "train", to={"net": ["mlp", "small_cnn"]}),
        "toy.yaml: methods.cot: coteaching has one model for all clients, but train.net lists several nets",
    ),
    "Adam for SCAFFOLD": (
        lambda s: (s["methods"].update(cot={"name": "scaffold"}), s["train"].update(optimiser="adam")),
        "toy.yaml: methods.cot.train.optimiser: expected sgd for scaffold, got adam",
    ),
    "a setting that does nothing": (
        at("methods", "cot", "server_lr", to=0.5),
        "toy.yaml: methods.cot.server_lr: unknown key; known: draws, exponent, forget_rate",
    ),
    "images too small": (
        at("train", "net", to="cnn9"),
        "toy.yaml: train.net: cnn9 needs images of 28 pixels a side or more; 'digits' has 8",
    ),
    "images too small for one of a method's nets": (
        at("methods", "cot", "train", to={"net": {"name": "lenet"}}),
        "toy.yaml: methods.cot.train.net: lenet needs images of 12 pixels a side or more; 'digits' has 8",
    ),
    "one image in a batch": (
        lambda s: (s["train"].update(batch=1, net="cnn9"), s["grid"][0].update(datasets=["mnist"])),
        "toy.yaml: train.net: cnn9 cannot train on single images of 28 pixels a side (train.batch is 1). Take",
    ),
    "nothing to go on from": (
        at("methods", "cot", "train", to={"sampling": "continued"}),
        "toy.yaml: methods.cot.train.sampling: 'continued' needs noise that leaves its generator in the labels",
    ),
    "no public images": (
        lambda s: (s["methods"].update(cot={"name": "fedmd"}), s["grid"][0].update(datasets=["mnist"])),
        "toy.yaml: methods.cot: fedmd needs public images: give 'mnist' a `public` part",
    ),
    "unknown method": (
        at("methods", "cot", "name", to="coteachin"),
        "unknown method 'coteachin'; did you mean 'coteaching'?",
    ),
    "unknown field": (
        at("methods", "cot", "ramps", to=1),
        "toy.yaml: methods.cot.ramps: unknown key; did you mean 'ramp'?",
    ),
    "a training setting among a method's": (
        at("methods", "cot", "lr", to=0.1),
        "toy.yaml: methods.cot.lr: unknown key; did you mean 'train.lr'?",
    ),
    "missing field": (
        lambda s: s["methods"]["cot"].pop("forget_rate"),
        "toy.yaml: methods.cot: the key 'forget_rate' is missing",
    ),
    "unknown net": (
        at("train", "net", to="smal_cnn"),
        "toy.yaml: train.net: unknown net 'smal_cnn'; did you mean 'small_cnn'?",
    ),
    "unknown net in a list": (
        at("methods", "cot", "train", to={"net": ["mlp", {"name": "mpl"}]}),
        "toy.yaml: methods.cot.train.net: unknown net 'mpl'; did you mean 'mlp'?",
    ),
    "unknown data set": (
        at("grid", 0, "datasets", to=["digit"]),
        "toy.yaml: grid[0].datasets: unknown data set 'digit'; did you mean 'digits'?",
    ),
    "labels that the data lack": (
        at("grid", 0, "noises", to=["given"]),
        "toy.yaml: grid[0]: noise 'given': data set 'digits' has no labels as collected; choose another noise",
    ),
    "people's labels without the setting": (
        lambda s: s["grid"][0].update(datasets=["cifar10"], noises=["human-worst"]),
        "toy.yaml: grid[0]: noise 'human-worst': data set 'cifar10' has no labels as collected; choose another noise, "
        "or write `human: true` in the data set's settings",
    ),
    "owners that the data lack": (
        at("grid", 0, "partitions", to=["natural"]),
        "toy.yaml: grid[0]: partition 'natural': data set 'digits' has no client ids; choose another partition",
    ),
    "owners that the user's data lack": (
        lambda s: s["grid"][0].update(datasets=["tiny"], partitions=["natural"]),
        "toy.yaml: grid[0]: partition 'natural': data set 'tiny' has no client ids; choose another partition",
    ),
    "unknown noise kind": (
        at("noises", "mine", "kind", to="symetric"),
        "unknown noise 'symetric'; did you mean 'symmetric'?",
    ),
    "asymmetric as papers call it": (
        at("noises", "mine", to={"kind": "asymmetric", "rate": 0.4}),
        "toy.yaml: noises.mine: the key 'sparsity' is missing: Share of the off-diagonal entries that are 0, at most "
        "(K-2)/(K-1). Flips between look-alike classes of CIFAR-10, which papers call asymmetric too, are kind "
        "semantic.",
    ),
    "noise id with another rate": (
        at("grid", 0, "noises", to=["sym50"]),
        "toy.yaml: grid[0].noises: unknown noise 'sym50'; define it: noises: {sym50: {kind: symmetric, rate: 0.5}}",
    ),
    "method id with another rate": (
        at("grid", 0, "methods", to=["coteaching-5"]),
        "toy.yaml: grid[0].methods: unknown method 'coteaching-5'; define it: methods: {coteaching-5: {name: "
        "coteaching, forget_rate: 0.05}}",
    ),
    "misspelt noise id with a rate": (
        at("grid", 0, "noises", to=["symm40"]),
        "toy.yaml: grid[0].noises: unknown noise 'symm40'; did you mean 'sym40'?",
    ),
    "number of seeds": (
        at("seeds", to=3),
        "toy.yaml: seeds: expected list of 1 or more different integers ≥ 0, such as [0, 1, 2], got 3",
    ),
    "percent": (
        at("noises", "mine", "rate", to=40),
        "toy.yaml: noises.mine.rate: expected number, 0 ≤ x ≤ 1, got 40; 40 % is 0.4",
    ),
    "unknown noise id": (
        at("grid", 0, "noises", to=["mien"]),
        "toy.yaml: grid[0].noises: unknown noise 'mien'; did you mean",
    ),
    "ImageNet for a small stem": (
        at("methods", "cot", "train", to={"net": {"name": "resnet18", "weights": "imagenet"}}),
        "toy.yaml: methods.cot.train.net: resnet18: weights of ImageNet need `stem: 7x7`",
    ),
    "kind in place of an id": (
        at("grid", 0, "noises", to=["symmetric"]),
        "toy.yaml: grid[0].noises: unknown noise 'symmetric'; the library has it: define an id for it, such as noises: "
        "{symmetric: {kind: symmetric, rate: 0.4}}",
    ),
    "method in place of an id": (
        at("grid", 0, "methods", to=["coteaching"]),
        "unknown method 'coteaching'; the library has it: define an id for it, such as methods: {coteaching: "
        "{name: coteaching, forget_rate: ",
    ),
    "unknown method id": (
        at("grid", 0, "methods", to=["fedavgg"]),
        "grid[0].methods: unknown method 'fedavgg'; did you mean",
    ),
    "each names the other": (
        at("grid", 0, "noises", to=["levels"]),
        "toy.yaml: grid[0]: noise 'levels' needs the partition and partition 'open' needs the noisy labels",
    ),
    "more clients than samples": (
        at("partitions", "open", "clients", to=2000),
        "toy.yaml: partitions.open.clients: expected at most 1187, the training samples of 'digits', got 2000",
    ),
    "id with a slash": (at("noises", "a/b", to={"kind": "none"}), "toy.yaml: noises: expected an id"),
    "unknown table kind": (at("tables", "main", "kind", to="acuracy"), "did you mean 'accuracy'?"),
    "table of no run": (
        at("tables", "main", "methods", to=["cott"]),
        "toy.yaml: tables.main.methods[0]: no run has 'cott'; did you mean 'cot'?",
    ),
    "empty label": (
        at("methods", "cot", "label", to=" "),
        "toy.yaml: methods.cot.label: expected one line of 1 to 100 letters",
    ),
    "label of another method": (
        at("methods", "cot", "label", to="FedAvg"),
        "toy.yaml: methods: fedavg and cot are both called 'FedAvg'. Give one of them another label",
    ),
    "label of two lines": (at("methods", "cot", "label", to="a\nb"), "toy.yaml: methods.cot.label: expected one line"),
    "endless label": (at("methods", "cot", "label", to="x" * 10**5), "toy.yaml: methods.cot.label: expected one line"),
    "list for an augmentation": (at("train", "augment", to={"name": ["flip"]}), "toy.yaml: train.augment.name: "),
    "id that ends in a newline": (at("noises", "a\n", to={"kind": "none"}), "toy.yaml: noises: expected an id"),
    "seed of 300 digits": (at("seeds", to=[10**300]), "toy.yaml: seeds[0]: expected a whole number of at most 63 bits"),
    "default net too small": (
        lambda s: (s["train"].pop("net"), s["grid"][0].update(datasets=["tiny"])),
        "toy.yaml: train.net: small_cnn needs images of 4 pixels a side or more; 'tiny' has 2",
    ),
    "baseline without a run": (
        at("figures", "gains", to={"kind": "paired_gains", "baseline": "fedvag"}),
        "toy.yaml: figures.gains.baseline: no run has 'fedvag'; did you mean 'fedavg'?",
    ),
    "baseline that the figure leaves out": (
        at("figures", "gains", to={"kind": "paired_gains", "baseline": "fedavg", "methods": ["cot"]}),
        "toy.yaml: figures.gains.baseline: no run has 'fedavg'; known: cot",
    ),
    "gains over nothing": (
        at("figures", "gains", to={"kind": "paired_gains", "methods": ["cot"]}),
        "toy.yaml: figures.gains.baseline: no run has 'fedavg'; known: coteaching",
    ),
    "source of no setting": (
        at("sources", to={"train.lrr": "paper"}),
        "toy.yaml: sources.train.lrr: expected the keys of a setting of this study, joined by dots; did you mean "
        "'train.lr'?",
    ),
    "subset of no seed": (
        at("subsets", to={"some": [{"seeds": [99]}]}),
        "toy.yaml: subsets.some[0].seeds[0]: the grid has no 99; known: 0, 1",
    ),
    "settings of no method": (
        at("settings", to={"fedavgg": {"server_lr": 0.5}}),
        "toy.yaml: settings.fedavgg: expected the id of a method; did you mean 'fedavg'?",
    ),
    "settings of no method of the block": (
        at("grid", 0, "settings", to={"fedprox": {"mu": 0.5}}),
        "toy.yaml: grid[0].settings.fedprox: expected the id of a method; known: cot, fedavg",
    ),
    "empty title": (at("title", to=""), 'toy.yaml: title: expected text of 1–500 letters, got ""'),
    "link": (
        at("paper", to={"title": "A", "authors": ["B"], "link": "ftp://c"}),
        r'toy.yaml: paper.link: expected text that fits ^https://\S+\Z, got "ftp://c"',
    ),
    "sweep of nothing": (
        at("methods", "cot", "sweep", to={}),
        "toy.yaml: methods.cot.sweep: expected {…} with 1–6 keys, got {}",
    ),
    "table named as a target": (
        at("tables", "runs", to={"kind": "accuracy"}),
        "toy.yaml: tables.runs: toy_runs is already a target",
    ),
    "own data of no source": (
        at("datasets", to={"few": {"source": "digit"}}),
        "toy.yaml: datasets.few.source: unknown dataset 'digit'",
    ),
    "unknown key of own data": (
        at("datasets", to={"few": {"source": "digits", "tset": 9}}),
        "toy.yaml: datasets.few.tset: unknown key",
    ),
    "own data without their file": (
        at("datasets", to={"digits": {"source": "npz", "path": "x.npz"}}),
        "toy.yaml: datasets.digits: dataset npz",
    ),
    "list for data sets": (at("datasets", to=[]), "toy.yaml: datasets: expected "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_study(folder: Path, case: str) -> None:
    edit, message = BAD[case]
    write(folder, "config/studies/toy.yaml", edited(edit))
    datasets = yaml.safe_load((folder / "config/datasets.yaml").read_text())
    write(folder, "config/datasets.yaml", {**datasets, "tiny": {"source": "npz", "path": "tiny.npz"}})
    small, y = np.zeros((9, 2, 2), np.uint8), np.arange(9) % 3
    np.savez(folder / "tiny.npz", x_train=small, y_train=y, x_test=small, y_test=y)
    with pytest.raises(SpecError) as error:
        Study(project(folder), "toy")
    assert message in str(error.value)
    assert str(error.value).startswith("config/studies/toy.yaml: ")
    assert "\n" not in str(error.value)


def test_wrong_indentation_is_named(folder: Path) -> None:
    text = yaml.safe_dump({**STUDY, "tables": None, "main": {"kind": "accuracy"}})
    (folder / "config/studies/toy.yaml").write_text(text)
    problem = r"toy.yaml: tables: expected \{…\}, got null; indent the lines that belong to it, or leave it out\n"
    with pytest.raises(SpecError, match=problem):
        Study(project(folder), "toy")


def test_a_study_with_another_ending_is_named(folder: Path) -> None:
    write(folder, "config/studies/mine.yml", STUDY)
    with pytest.raises(SpecError, match=r"^config/studies/mine.yml: rename it to mine.yaml$"):
        Targets(project(folder)).refuse_target("mine")


def test_a_study_declares_its_own_data_sets(folder: Path) -> None:
    datasets = {"digits": {"source": "digits", "test": 200}, "few": {"source": "digits", "subset": {"train": 600}}}
    block = {**STUDY["grid"][0], "datasets": ["digits", "few"]}
    write(folder, "config/studies/toy.yaml", {**STUDY, "datasets": datasets, "grid": [block]})
    write(folder, "config/studies/other.yaml", STUDY)
    toy_study, other_study = Study(project(folder), "toy"), Study(project(folder), "other")
    assert {run.dataset: run.spec["dataset"] for run in toy_study.runs} == datasets
    assert all(run.spec["dataset"] == {"source": "digits"} for run in other_study.runs)
    folders = [study.plan_setting("digits", "mine", "open", 0)[0].folder for study in (toy_study, other_study)]
    assert folders[0] != folders[1]
    assert toy_study.page_metadata()["datasets"] == datasets


def test_overrides_make_other_runs_in_a_folder_of_their_own(folder: Path) -> None:
    """They win over blocks and scales. A definition of the catalogue keeps what they do not name."""
    block = {**STUDY["grid"][0], "train": {"lr": 0.2}, "seeds": [7]}
    study = {**STUDY, "grid": [block], "scales": {"smoke": {"seeds": [5], "train": {"lr": 0.3}}}}
    write(folder, "config/studies/toy.yaml", study)
    texts = ["train.lr=0.07", "seeds=[3]", "noises.mine.rate=0.2", "methods.fedavg.weighting=uniform"]
    changed = Study(project(folder, set=texts, scale="smoke"), "toy")
    ending = "@methods.fedavg.weighting=uniform@noises.mine.rate=0.2@seeds=3@train.lr=0.07"
    assert changed.root == f"results/toy-smoke{ending}"
    assert {run.seed for run in changed.runs} == {3}
    assert {run.method: run.spec["train"]["lr"] for run in changed.runs} == {"fedavg": 0.07, "cot": 0.5}
    assert {run.spec["noise"]["rate"] for run in changed.runs} == {0.2}
    assert changed.runs[0].spec["method"] == {"name": "fedavg", "weighting": "uniform"}
    assert changed.page_metadata()["title"] == f"Toy ({', '.join(texts)})"
    plain = Study(project(folder, scale="smoke"), "toy")
    assert not {run.folder for run in plain.runs} & {run.folder for run in changed.runs}
    assert "set" not in plain.page_metadata()
    long = Study(project(folder, set=["train.lr=0.05", f"text={'long, ' * 30}"]), "toy").root
    assert re.fullmatch(r"results/toy@set-\w{16}", long)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.rl=0.05", "toy.yaml with train.rl=0.05: train.rl: unknown key; did you mean 'lr'?"),
        ("train.lr=fast", 'toy.yaml with train.lr=fast: train.lr: expected number ≥ 0, got "fast"'),
        (
            "seeds=3",
            "toy.yaml with seeds=3: seeds: expected list of 1 or more different integers ≥ 0, such as [0, 1, 2], got 3",
        ),
        ("trian.lr=1", "toy.yaml with trian.lr=1: trian: unknown key; did you mean 'train'?"),
        ("noises.sym40.rat=1", "toy.yaml with noises.sym40.rat=1: noises.sym40.rat: unknown key"),
        ("train.lr={", "config: set.train.lr: line 2: "),
        ("train.lr", 'config: set[0]: expected text such as train.lr=0.05, got "train.lr"'),
    ],
)
def test_a_wrong_override_is_named(folder: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)) as error:
        Study(project(folder, set=[text]), "toy")
    assert "\n" not in str(error.value)


def test_all_mistakes_of_tables_figures_and_config_are_named_at_once(folder: Path) -> None:
    wrong = {
        **STUDY,
        "tables": {"main": {"kind": "accuracy", "methods": ["fedavgg"], "seeds": [9]}, "runs": {"kind": "accuracy"}},
        "figures": {"curves": {"kind": "curves", "methods": ["cott"]}, "gains": {"kind": "paired_gains", "seeds": [8]}},
    }
    write(folder, "config/studies/toy.yaml", wrong)
    with pytest.raises(SpecError) as error:
        Study(project(folder), "toy")
    places = [line.split(": ")[1] for line in str(error.value).splitlines()]
    assert places == [
        "tables.main.methods[0]",
        "tables.main.seeds[0]",
        "tables.runs",
        "figures.curves.methods[0]",
        "figures.gains.seeds[0]",
    ]
    with pytest.raises(SpecError) as error:
        project(folder, scale="smal", studies=["toyy", "toy"], data_root="nowhere", overlay={"train": 3})
    places = [line.split(": ")[1] for line in str(error.value).splitlines()]
    assert places == ["scale", "overlay.train", "studies[0]", "data_root"]


def edit_everywhere(study: dict[str, Any]) -> None:
    """Use every key in which a study may name something."""
    study["settings"] = {"cot": {"ramp": 2}}
    study["grid"][0] |= {"settings": {"fedavg": {"weighting": "uniform"}}, "train": {"batch": 9}}
    lists = {"datasets": ["digits"], "noises": ["mine"], "partitions": ["open"]}
    study["grid"].append({**lists, "methods": ["swept@ramp=1"]})
    study["methods"]["swept"] = {"name": "coteaching", "forget_rate": 0.2, "sweep": {"ramp": [1, 2]}}
    study["subsets"] = {"some": [{"datasets": ["digits"], "noises": ["mine"], "methods": ["cot", "swept@ramp=1"]}]}
    study["dataset_substitutes"] = {"cifar10": "digits"}
    study["tables"]["main"] |= {"methods": ["cot", "swept@ramp=1"], "noises": ["mine"]}
    small = {"datasets": ["digits"], "noises": ["levels"], "partitions": ["even"], "methods": ["fedavg", "cot"]}
    study["scales"] = {
        "smoke": {
            "train": {"rounds": 2, "net": {"name": "mlp", "hidden": 8}},
            "settings": {"cot": {"ramp": 1}, "fedavg": {"weighting": "uniform"}},
            "methods": {"cot": {"forget_rate": 0.1}, "other": {"name": "fedavg", "train": {"augment": "flip"}}},
            "partitions": {"even": {"clients": 4}},
            "grid": [{**small, "train": {"optimiser": "adam"}, "settings": {"cot": {"exponent": 2}}}],
            "dataset_substitutes": {"mnist": "digits"},
            "tables": {"main": {"metric": "best"}},
        }
    }


def find_names(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """The position of every text (its keys), with true if it is a key."""
    if isinstance(value, str):
        yield keys, False
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(key, str):
            yield (*keys, key), True
        yield from find_names(part, (*keys, key))


def misspell(study: dict[str, Any], keys: tuple[Any, ...], *, is_key: bool) -> None:
    """Write a text with one letter more."""
    for key in keys[:-1]:
        study = study[key]
    if is_key:
        study[f"{keys[-1]}z"] = study.pop(keys[-1])
    else:
        study[keys[-1]] += "z"


FREE = {("title",), ("tables", "main"), ("figures", "curves"), ("subsets", "some")}  # read by nothing else in the file
FREE |= {("scales", "smoke", "tables", "main"), ("scales", "smoke", "methods", "other")}


def test_a_misspelt_key_or_id_anywhere_in_a_study_is_refused(folder: Path) -> None:
    """The message has the file and the nearest name. Overlays of other scales are checked, too."""
    write(folder, "config/studies/toy.yaml", edited(edit_everywhere))
    assert Study(project(folder), "toy").runs
    assert Study(project(folder, scale="smoke"), "toy").runs
    places = [place for place in find_names(edited(edit_everywhere)) if place[0] not in FREE]
    assert len(places) > 100
    scales, missed = [project(folder), project(folder, scale="smoke")], []
    refusal = re.compile(r"config/studies/toy\.yaml( at scale smoke)?: .*(did you mean|is missing|nominal\", got)")
    for (keys, is_key), scaled in product(places, scales):
        study = edited(edit_everywhere)
        misspell(study, keys, is_key=is_key)
        write(folder, "config/studies/toy.yaml", study)
        try:
            Study(scaled, "toy")
            missed.append((keys, "taken"))
        except SpecError as error:
            if not refusal.match(str(error)):
                missed.append((keys, str(error)))
    assert not missed


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"device": "tpu"}, "config: device: "),
        ({"studies": ["toi"]}, "config: studies[0]: unknown study 'toi'; did you mean 'toy'?"),
        ({"stdies": ["toy"]}, "config: stdies: unknown key; did you mean 'studies'?"),
        (
            {"scale": "huge"},
            "config: scale: expected paper or the name of a file in config/scales, got 'huge'; known: cpu",
        ),
        ({"studies": []}, "config: studies: "),
        ({"data_root": "none/such"}, "config: data_root: expected a folder, got 'none/such'"),
        ({"overlay": "x"}, 'config: overlay: expected {…}, got "x"'),
        ({"scale": "cpu", "overlay": {"train": 3}}, "config: overlay.train: expected {…}, got 3"),
    ],
)
def test_bad_config(folder: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(message)}"):
        project(folder, **config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device: auto\nstudies: [toy\nscale: paper\n", "line 3: "),
        ("device: auto\ndevice: cpu\n", "line 2: the key 'device' is repeated"),
        ("studies: toy\n", "studies: "),
        ("on: cuda\n", "on: unknown key; known: "),
        ("- device\n", "expected keys and values"),
    ],
)
def test_broken_config_file(folder: Path, text: str, message: str) -> None:
    """It is refused even if the command line replaces the wrong value."""
    (folder / "config/config.yaml").write_text(text)
    with pytest.raises(SpecError, match=f"^config/config.yaml: {re.escape(message)}"):
        Project(CONFIG)


def test_mistakes_name_their_file(folder: Path) -> None:
    """Mistakes in a scale, in a data set, and two files of one name."""
    (folder / "config/scales/mine.yaml").write_text("scale: cpu\noverlai: {}\n")
    with pytest.raises(SpecError, match=r"^config/scales/mine.yaml: overlai: unknown key; did you mean 'overlay'\?$"):
        Project({**CONFIG, "overlai": {}}, folder, ("config/config.yaml", "config/scales/mine.yaml"))
    (folder / "config/scales/smoke.yaml").write_text("scale: smoke\noverlay: {seeds: [0\n")
    with pytest.raises(SpecError, match=r"config/scales/smoke.yaml: line 3: "):
        project(folder, scale="smoke")
    datasets = yaml.safe_load((folder / "config/datasets.yaml").read_text())
    write(folder, "config/datasets.yaml", {**datasets, "digits": {"source": "digits", "test": 360, "public": 5000}})
    with pytest.raises(SpecError, match=r"datasets.yaml: digits: test and public images leave none to train on$"):
        Study(project(folder), "toy")
    (folder / "config/papers").mkdir(exist_ok=True)
    write(folder, "config/papers/toy.yaml", STUDY)
    with pytest.raises(SpecError, match=r"config/papers/toy.yaml: config/studies/toy.yaml has the same name"):
        project(folder)


def test_scales(folder: Path) -> None:
    """Overlays of a study: from a file, from the command line and, last, from the study itself."""
    small = Study(project(folder, scale="smoke"), "toy")
    assert [(run.spec["train"]["rounds"], run.seed) for run in small.runs] == [(2, 0)] * 2  # config/scales/smoke.yaml
    overlay = {"train": {"rounds": 1, "lr": 0.2}, "seeds": [5]}
    write(folder, "config/studies/toy.yaml", edited(lambda s: s.update(scales={"smoke": {"train": {"lr": 0.9}}})))
    study = Study(project(folder, scale="smoke", overlay=overlay), "toy")
    assert study.root == "results/toy-smoke"
    assert [run.seed for run in study.runs] == [5, 5]  # a list is replaced
    train = study.find_run("digits", "mine", "open", "fedavg", 5).spec["train"]
    assert train == {"net": "mlp", "rounds": 1, "epochs": 1, "lr": 0.9}
    assert Study(project(folder), "toy").data["train"]["lr"] == 0.1
    write(folder, "config/studies/toy.yaml", edited(lambda s: s.update(scales={"smoke": {"train": {"rounds": 0}}})))
    with pytest.raises(SpecError, match=r"^config/studies/toy.yaml at scale smoke: train.rounds: "):
        Study(project(folder, scale="smoke"), "toy")
    write(folder, "config/scales/small.yaml", {"scale": "small", "overlay": {"train": {"net": {"name": "mlp"}}}})
    # valid only over the scale's own overlay
    write(folder, "config/studies/toy.yaml", edited(at("scales", to={"small": {"train": {"net": {"hidden": 8}}}})))
    assert Study(project(folder, scale="small"), "toy").data == Study(project(folder), "toy").files["small"].data


def test_words_that_yaml_1_1_takes_for_truth_values(folder: Path) -> None:
    """An unquoted `on` is a text in our files, but Snakemake reads config files itself and passes True."""
    text = yaml.safe_dump(edited(at("train", "augment", to={"name": "flip", "KEY": "image"})))
    (folder / "config/studies/toy.yaml").write_text(text.replace("KEY:", "on:"))
    study = Study(project(folder), "toy")
    assert study.data["train"]["augment"] == {"name": "flip", "on": "image"}
    (folder / "config/studies/toy.yaml").write_text(text.replace("KEY: image", "per: yes"))
    with pytest.raises(SpecError, match=r"train\.augment.per: "):
        Study(project(folder), "toy")
    with pytest.raises(SpecError, match=r"the key True \(an unquoted on, off, yes or no may be read so\) is not text"):
        Study(project(folder, overlay={"train": {"augment": {True: "image"}}}), "toy")


def test_missing_data_of_the_user(folder: Path) -> None:
    write(
        folder, "config/datasets.yaml", {"digits": {"source": "digits"}, "mine": {"source": "npz", "path": "mine.npz"}}
    )
    write(folder, "config/studies/toy.yaml", edited(at("grid", 0, "datasets", to=["mine"])))
    with pytest.raises(SpecError, match=r"^config/datasets.yaml: mine: .*mine\.npz"):
        Study(project(folder), "toy")
    record = Path(project(folder).contents_folder("mine"), "contents.json")
    record.parent.mkdir(parents=True)
    record.write_text('"0123"')  # from when the arrays were made: the file may be elsewhere now
    write(folder, "config/studies/toy.yaml", edited(lambda s: (at("grid", 0, "datasets", to=["mine"])(s), set_rate(s))))
    assert Study(project(folder), "toy").runs[0].row["arrays"].startswith("data/arrays/npz/")


def set_rate(study: dict[str, Any]) -> None:
    """Give Co-teaching a number: without the data the number of classes is unknown, and so is the nominal rate."""
    study["methods"]["cot"]["forget_rate"] = 0.3


def test_fingerprint_follows_the_users_file(folder: Path) -> None:
    write(
        folder, "config/datasets.yaml", {"digits": {"source": "digits"}, "mine": {"source": "npz", "path": "mine.npz"}}
    )
    arrays = {"x_train": np.zeros((9, 4, 4), np.uint8), "y_train": np.arange(9) % 3}
    fingerprints = []
    for value in (0, 1):
        np.savez(folder / "mine.npz", x_test=np.full((3, 4, 4), value, np.uint8), y_test=np.arange(3), **arrays)
        fingerprints.append(project(folder).dataset_fingerprint("mine"))
    assert fingerprints[0] != fingerprints[1]
    assert fingerprints[1] == project(folder).dataset_fingerprint("mine")
    assert project(folder).dataset_fingerprint("digits") == ""


def test_a_label_or_another_name_of_the_study_is_no_part_of_what_identifies_a_run(folder: Path) -> None:
    def planned(name: str, edit: Edit) -> list[tuple[str, str, bool]]:
        write(folder, f"config/studies/{name}.yaml", edited(edit))
        return [(json_digest(run.spec), run.label, run.oracle_rate) for run in Study(project(folder), name).runs]

    def renamed(study: dict[str, Any]) -> None:
        for key, old in (("noises", "mine"), ("partitions", "open"), ("methods", "cot")):
            study[key]["new"] = study[key].pop(old)
        study["grid"][0].update(noises=["new"], partitions=["new"], methods=["fedavg", "new"])
        study["figures"] = {}

    plain = planned("toy", lambda s: None)
    assert [run[0] for run in planned("renamed", renamed)] == [run[0] for run in plain]
    labelled = planned("other", at("methods", "cot", "label", to="Ours"))
    assert [run[0] for run in plain] == [run[0] for run in labelled]
    assert {run[1] for run in labelled} == {"FedAvg", "Ours"}
    written = planned("told", at("methods", "cot", "forget_rate", to=0.3))  # the oracle's rate, written out
    assert [run[0] for run in written] == [run[0] for run in plain]
    assert [run[2] for run in written] == [False] * 4
    assert [run[2] for run in plain] == [False, False, True, True]


@pytest.mark.parametrize("value", ["2024-01-01", "!!binary aGk=", "!!set {a, b}", "!!bool many", "!!int ''"])
@pytest.mark.parametrize("line", ["{}: {{source: digits}}", "mine: {}", "mine: {{source: npz, path: {}}}"])
def test_odd_yaml_in_the_data_sets_is_one_message(folder: Path, line: str, value: str) -> None:
    (folder / "config/datasets.yaml").write_text(line.format(value))
    with pytest.raises(SpecError, match=r"config/datasets.yaml: .*(Put it in quotes|not readable as)[^\n]*$"):
        _ = project(folder).datasets


@pytest.mark.parametrize(
    "id", ["..", ".", ".hidden", "", "a b", "a/b", "*", "{x}", "$(touch x)", "a\n", "-x", "a" * 65, "ä"]
)
def test_ids_of_data_sets_are_checked(folder: Path, id: str) -> None:
    datasets = yaml.safe_load((folder / "config/datasets.yaml").read_text())
    write(folder, "config/datasets.yaml", {**datasets, id: {"source": "digits"}})
    with pytest.raises(SpecError, match=r"^config/datasets.yaml: .*expected an id of at most 64 letters") as error:
        Study(project(folder), "toy")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my study", "expected an id of at most 64 letters and digits, after the first also _ -, got 'my study'"),
        ("x;touch PWNED;y", "expected an id"),
        ("a+b", "expected an id"),
        ("a(b", "expected an id"),
        ("a\nb", "expected an id"),
        (".hidden", "expected an id"),
        ("ä", "expected an id"),
        ("all", "'all' is a rule of the workflow"),
        ("train", "'train' is a rule of the workflow"),
        ("toy_runs", "'toy_runs' is also a target of study 'toy'"),
        ("toy-smoke", "results/toy-smoke is also the folder of study 'toy' at scale smoke"),
    ],
)
def test_file_names_of_studies_are_checked(folder: Path, name: str, message: str) -> None:
    write(folder, f"config/studies/{name}.yaml", STUDY)
    with pytest.raises(SpecError) as error:
        project(folder)
    assert message in str(error.value)
    assert str(error.value).lstrip("'").startswith("config/studies/")
    assert "\n" not in str(error.value)


def test_rules_names_are_reserved() -> None:
    """A study is a rule of its name: no name may be that of a rule."""
    files = [ROOT / "Snakefile", *(ROOT / "rules").glob("*.smk")]
    rules = {name for file in files for name in re.findall(r"^rule (\w+):", file.read_text(), re.M)}
    assert reserved_names() == rules | {"papers", "stored", "stage_data"}  # those of Targets.named


def test_entries_of_the_catalogue_that_no_study_uses_are_checked(folder: Path) -> None:
    catalogue = yaml.safe_load((folder / "config/catalogue.yaml").read_text())
    for key, spec, message in (
        ("noises", {"kind": "symmetric", "rate": 2}, "noises.unused.rate: "),
        ("partitions", {"kind": "ii"}, "partitions.unused.kind: unknown partition 'ii'"),
        ("methods", {"name": "fedavg", "lr": 1}, "methods.unused.lr: unknown key"),
        ("methods", {"name": "fedavg", "train": {"net": "mpl"}}, "methods.unused.train.net: unknown net 'mpl'"),
    ):
        write(folder, "config/catalogue.yaml", {**catalogue, key: {**catalogue[key], "unused": spec}})
        with pytest.raises(SpecError, match=f"^config/catalogue.yaml: {message}"):
            _ = project(folder).catalogue


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ({"train": {"ruonds": 3}}, "train.ruonds: "),
        ({"seeds": ["x"]}, "seeds[0]: "),
        ({"noises": {"mine": {"rate": 7}}}, "noises.mine.rate: "),
    ],
)
def test_a_mistake_in_an_overlay_names_study_and_scale(folder: Path, overlay: dict[str, Any], message: str) -> None:
    write(folder, "config/scales/mine.yaml", {"scale": "mine", "overlay": overlay})
    scaled = Project(
        {**CONFIG, "scale": "mine", "overlay": overlay}, folder, ("config/config.yaml", "config/scales/mine.yaml")
    )
    with pytest.raises(SpecError, match=f"^config/studies/toy.yaml at scale mine: {re.escape(message)}"):
        Study(scaled, "toy")


def test_an_overlay_without_a_scale_of_its_own_is_refused(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"^config: overlay: at scale paper it would overwrite"):
        project(folder, overlay={"train": {"rounds": 1}})
    write(folder, "config/config.yaml", {**CONFIG, "overlay": {"seeds": [0]}})
    with pytest.raises(SpecError, match=r"^config: overlay: at scale paper it would overwrite"):
        project(folder, overlay={"seeds": [0]})


def test_the_default_net_is_in_the_code_of_a_run(folder: Path) -> None:
    write(folder, "config/studies/toy.yaml", edited(lambda s: s["train"].pop("net")))
    spec = Study(project(folder), "toy").runs[0].spec
    assert "net" not in spec["train"]
    entries = StepCode(ROOT).step_entries("training_run", net=net_code(spec["train"]))
    assert "fednoise_core/nets/small.py" in read_modules(ROOT, entries)


def test_all_mistakes_of_a_study_are_named_at_once(folder: Path) -> None:
    def edit(study: dict[str, Any]) -> None:
        study["noises"]["mine"] |= {"rate": 3, "sampling": "exactly"}
        study["partitions"]["even"]["cleints"] = 5
        study["methods"]["cot"] |= {"label": "", "train": {"lr": -1, "rounds": 0}}
        study["train"]["momentum"] = 2
        study["grid"][0]["datasets"] += ["digitss", "mnistt"]

    write(folder, "config/studies/toy.yaml", edited(edit))
    with pytest.raises(SpecError) as caught:
        Study(project(folder), "toy")
    places = [line.split(": ")[1] for line in str(caught.value).splitlines()]
    assert sorted(places) == sorted(
        [
            "noises.mine.rate",
            "noises.mine.sampling",
            "partitions.even.cleints",
            *(f"methods.cot.{key}" for key in ("label", "train.lr", "train.rounds")),
            "train.momentum",
            "grid[0].datasets",
            "grid[0].datasets",
        ]
    )
