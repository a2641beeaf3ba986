"""The folders of a real federation: one for the server, and one for each site, with only the rows of the site."""

from __future__ import annotations

import functools
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from pydantic import Field

import fednoise_core
from fednoise_core.api.checks import check_pools
from fednoise_core.data.array_checks import ArraysError, as_images, as_labels
from fednoise_core.data.arrays import Arrays, take_rows
from fednoise_core.data.partition import Partition
from fednoise_core.engine.local import Local
from fednoise_core.engine.world import World
from fednoise_core.io import (
    ArtifactError,
    SpecError,
    json_digest,
    load_npz,
    open_atomic,
    save_npz,
    sha256_file,
    write_json,
)
from fednoise_core.methods import make_method, method_class
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.declare import build_settings, check_keys
from fednoise_core.settings.train import Train

APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fednoise-app"
version = "1.0.0"
description = "A planned run of fednoise_core"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fednoise"

[tool.flwr.app.components]
serverapp = "fednoise_core.flower.apps:server_app"
clientapp = "fednoise_core.flower.apps:client_app"

[tool.flwr.app.config]
folder = {folder}
deadline = {deadline}
wait = {wait}
strict = false
nodes = ""
"""
RUN, SERVER_DATA, SITE_DATA = "run.json", "server.npz", "site.npz"
FACTS = ("classes", "mean", "std", "names")  # of the data set
TYPES = {
    "method": dict[str, Any],
    "seed": int,
    "sites": list[str],
    "copies": Annotated[int, Field(ge=1)],
    "shape": list[int],
    "data": dict[str, Any],
}  # of the settings of a run; `train` has its own


@functools.cache
def code_digest() -> str:
    """Compute the digest of the package's code, which must be the same at the server and the sites."""
    folder = Path(fednoise_core.__file__).parent
    files = sorted(folder.rglob("*.py"))
    return json_digest([[file.relative_to(folder).as_posix(), sha256_file(file)] for file in files])


@dataclass(frozen=True)
class RunSettings:
    """Settings that server and sites agreed on: the content of run.json.

    Attributes:
        method: {"name": …, settings…}, with a name of METHODS, or "module:Class" of a module that is installed at the
            server and at each site.
        train: Training settings.
        seed: The run's seed.
        sites: Names of the sites, in the order of their numbers.
        copies: Largest number of sites that hold the same sample.
        shape: Shape of one image, (H, W) or (H, W, C), or of one feature vector, (d,).
        data: Facts about the data set, by the names in FACTS.
    """

    method: Mapping[str, Any]
    train: Mapping[str, Any]
    seed: int
    sites: tuple[str, ...]
    copies: int
    shape: Sequence[int]
    data: Mapping[str, Any]

    @classmethod
    def load(cls, folder: Path) -> RunSettings:
        """Load run.json of a folder.

        Raises:
            ArtifactError: The file is missing or damaged.
        """
        file = folder / RUN
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            return cls(**{**fields, "sites": tuple(fields["sites"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ArtifactError(f"{file}: expected a run's settings, got {error}. Copy the server's file") from error

    @property
    def digest(self) -> str:
        """Digest of settings and code, including the user's own method. Messages with another digest are refused."""
        modules = {cls.__module__ for cls in type(self.make_method()).__mro__ if issubclass(cls, Local)}
        own = {name for name in modules if name.partition(".")[0] != fednoise_core.__name__}
        files = {name: sha256_file(Path(str(sys.modules[name].__file__))) for name in own}
        return json_digest(vars(self), code_digest(), files)

    def check(self) -> None:
        """Check the settings as far as this is possible without images.

        Raises:
            SpecError: A setting is wrong, or the method cannot run at sites.
        """
        check_keys(TYPES, vars(self), "settings")
        if any(Path(name).name != name for name in self.sites) or len(set(self.sites)) < len(self.sites):
            raise SpecError(f"settings.sites: expected names of different folders, got {', '.join(self.sites)}")
        if set(self.data) != set(FACTS):
            raise SpecError(f"settings.data: expected {', '.join(FACTS)}, got {', '.join(self.data) or 'nothing'}")
        self.make_method()

    def make_method(self) -> FedAvg:
        """Make the method with its settings.

        Raises:
            SpecError: A setting is wrong, or the method cannot run at sites.
        """
        name = self.method.get("name", "")
        if method_class(name).pooled:
            raise SpecError(f"method.name: {name} needs all samples in one place. Choose another method")
        train = self.make_train()
        if train.sampling == "continued":
            raise SpecError("train.sampling: continued goes on with the generator of simulated noise. Leave it out")
        return make_method(dict(self.method), train)

    def write_summary(self, folder: Path, summary: Mapping[str, Any], *, test_known: bool) -> None:
        """Write summary.json and spec.json, which `fn.load` needs.

        Args:
            folder: The folder of the server or of a site.
            summary: Further content of summary.json.
            test_known: Whether the accuracy is measured on trusted test labels. If not, it is agreement with given
                labels.
        """
        run = {"method": self.method["name"], "seed": self.seed}
        write_json(folder / "spec.json", {"spec": {"method": self.method, "train": self.train, "seed": self.seed}})
        write_json(folder / "summary.json", {"run": run, "test_known": test_known, **summary})

    def make_train(self) -> Train:
        """Make the training settings."""
        return build_settings(Train, self.train, "train")


@dataclass(frozen=True)
class SiteArrays:
    """The part of an `Arrays` that a site or the server has. There may be no images."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_public: np.ndarray | None
    classes: int
    mean: list[float]
    std: list[float]
    names: list[str]
    origin: np.ndarray | None = None
    first: np.ndarray | None = None
    source_sha256: Mapping[str, str] = field(default_factory=dict)  # of files; a site has arrays

    @property
    def n(self) -> int:
        """Number of training samples."""
        return len(self.x_train)

    def source(self, i: int) -> str:
        """Return the name of training sample `i` in the site's data."""
        return str(i if self.origin is None else self.origin[i])

    def as_arrays(self) -> Arrays:
        """Cast to `Arrays`, the type in the engine's signatures."""
        return cast(Arrays, self)


def load_data(
    folder: Path, settings: RunSettings, name: str
) -> tuple[SiteArrays, dict[str, np.ndarray], dict[str, Any]]:
    """Load the data of a folder.

    Args:
        folder: The folder of the server or of a site.
        settings: The run's settings.
        name: SERVER_DATA or SITE_DATA.

    Returns:
        The images, all arrays of the file by name, and facts about the site: `client`, which is its number (-1: the
        server), and `release_seed`.

    Raises:
        ArtifactError: The file is missing or damaged.
    """
    arrays, spec = load_npz(folder / name, "federation")
    try:
        labels = arrays.get("labels", np.zeros(len(arrays["x"]), np.int64))
        options = {name: arrays.get(name) for name in ("origin", "first")}
        images = SiteArrays(arrays["x"], labels, arrays.get("public"), **settings.data, **options)  # type: ignore[arg-type]
        return images, arrays, {name: int(spec[name]) for name in ("client", "release_seed")}
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{folder / name}: damaged ({type(error).__name__}: {error})") from error


def make_world(settings: RunSettings, images: SiteArrays, arrays: Mapping[str, np.ndarray], client: int) -> World:
    """Make the world of one process. In it, all other clients have no samples.

    Args:
        settings: The run's settings.
        images: The images of the process.
        arrays: Its further arrays, such as `valid` [n] of a site.
        client: The site's number (-1: the server).
    """
    n, clients = len(images.x_train), len(settings.sites)
    offsets = np.where(np.arange(clients + 1) > client, n, 0)
    partition = Partition(np.arange(n), offsets, arrays.get("valid", np.zeros(n, bool)), {})
    world = World(images.as_arrays(), images.y_train, partition, settings.make_train(), settings.seed)
    world.max_label_copies = settings.copies
    return world


def write_folders(
    out: Path,
    arrays: Arrays,
    noisy: np.ndarray,
    partition: Partition,
    method: Mapping[str, Any],
    train: Mapping[str, Any],
    seed: int,
) -> RunSettings:
    """Split a planned run: `server` gets test and public images, `site-<name>` the rows of that site.

    Args:
        out: The folder to write to.
        arrays: The data set.
        noisy: Given labels [n].
        partition: Assignment of samples to sites.
        method: {"name": …, settings…}.
        train: Training settings.
        seed: The run's seed.

    Returns:
        The settings that were written.

    Raises:
        SpecError: The method cannot run at sites.
    """
    facts = {name: list(v) if isinstance(v := getattr(arrays, name), tuple) else v for name in FACTS}
    copies = int(np.bincount(partition.index[~partition.valid]).max(initial=0))
    shape = arrays.x_train.shape[1:]
    settings = RunSettings(dict(method), dict(train), seed, partition.sites, copies, shape, facts)
    settings.check()
    replace(arrays, y_train=noisy)  # checks the labels
    public = None if arrays.x_public is None else np.asarray(arrays.x_public[:])
    first = None if arrays.first is None else np.where(arrays.first != arrays.y_train, arrays.first, noisy)
    write_server(out / "server", settings, np.asarray(arrays.x_test[:]), arrays.y_test, public)
    for client, name in enumerate(partition.sites):
        rows, block = partition.of(client), slice(*partition.offsets[client : client + 2])
        site = {
            "x": take_rows(arrays.x_train, rows),
            "labels": noisy[rows],
            "public": public,
            "valid": partition.valid[block],
            "origin": rows if arrays.origin is None else arrays.origin[rows],
            "first": None if first is None else first[rows],
        }
        _write_folder(out / f"site-{name}", settings, SITE_DATA, site, client, seed)  # in a simulation it may be empty
    return settings


def write_server(
    folder: Path, settings: RunSettings, images: np.ndarray, labels: np.ndarray, public: np.ndarray | None = None
) -> None:
    """Write the folder of the server.

    Args:
        folder: The folder.
        settings: Settings that server and sites agreed on.
        images: Test images, uint8 [n, H, W] or [n, H, W, C].
        labels: Their labels, int64 [n].
        public: Public images uint8, the same as at every site, for methods that need them.

    Raises:
        SpecError: A setting is wrong, or the arrays do not fit.
    """
    test = _check_arrays(settings, images, labels, public)
    arrays = {"x": test.x_test[:0], "x_test": test.x_test, "y_test": test.y_test, "public": test.x_public}
    _write_folder(folder, settings, SERVER_DATA, arrays, -1, settings.seed)


def write_site(
    folder: Path,
    settings: RunSettings,
    client: int,
    images: np.ndarray,
    labels: np.ndarray,
    public: np.ndarray | None = None,
    *,
    valid: np.ndarray | None = None,
    origin: np.ndarray | None = None,
    first: np.ndarray | None = None,
    release_seed: int | None = None,
) -> None:
    """Write the folder of a site.

    Args:
        folder: The folder. Only its owner can read it afterwards.
        settings: Settings that server and sites agreed on.
        client: The site's number, from 0.
        images: uint8 [n, H, W] or [n, H, W, C].
        labels: Given labels, int64 [n].
        public: Public images uint8, the same at every site, for methods that need them.
        valid: Samples of the validation split, bool [n]. Default: none.
        origin: Name of each sample in the site's data, integers or texts [n]. Default: its row.
        first: Labels as first given, int64 [n], if they were corrected later.
        release_seed: Seed of the noise of released labels. Default: a random seed. With the seed the noise can be
            removed, so it must differ from the run's seed, which the server knows.

    Raises:
        SpecError: A setting or the number is wrong, or the arrays do not fit.
    """
    site_arrays = _check_arrays(settings, images, labels, public, origin, first)
    if type(client) is not int or client not in range(len(settings.sites)):
        places = ", ".join(f"{number} ({name})" for number, name in enumerate(settings.sites))
        raise SpecError(f"client: expected the site's number, {places}, got {client!r}")
    valid = np.zeros(site_arrays.n, bool) if valid is None else valid
    if len(valid) != site_arrays.n:
        raise SpecError(f"valid: expected a value for each of {site_arrays.n} images, got {len(valid)}")
    arrays = {
        "x": site_arrays.x_train,
        "labels": site_arrays.y_train,
        "public": site_arrays.x_public,
        "valid": valid,
        "origin": site_arrays.origin,
        "first": site_arrays.first,
    }
    seed = secrets.randbits(63) if release_seed is None else release_seed
    _write_folder(folder, settings, SITE_DATA, arrays, client, seed)


def write_app(out: Path, server: Path, deadline: float = 600.0, wait: float = 600.0) -> None:
    """Write the Flower app that starts the run. Its code is the installed package.

    Args:
        out: The folder of the app.
        server: Path of the server's folder on its machine.
        deadline: Seconds in which sites must answer.
        wait: Seconds in which all sites must connect.
    """
    with open_atomic(out / "pyproject.toml") as file:
        file.write(APP.format(folder=json.dumps(str(server)), deadline=float(deadline), wait=float(wait)))


def _check_arrays(
    settings: RunSettings,
    images: np.ndarray,
    labels: np.ndarray,
    public: np.ndarray | None,
    origin: np.ndarray | None = None,
    first: np.ndarray | None = None,
) -> Arrays:
    """Check the settings, and check the arrays of the server or a site against them."""
    settings.check()
    x, y = as_images("images", np.asarray(images)), as_labels("labels", np.asarray(labels))
    shape, agreed = np.shape(images)[1:], tuple(settings.shape)
    if shape != agreed and (1, 1, *shape) != agreed:  # vectors, as they are stored
        raise SpecError(f"images: expected the agreed shape {agreed}, got {shape}. Convert them, or agree on another")
    try:
        arrays = Arrays(
            x,
            y,
            x,
            y,
            x_public=None if public is None else as_images("public", np.asarray(public)),
            origin=None if origin is None else np.asarray(origin),
            first=None if first is None else as_labels("first", np.asarray(first)),
            **settings.data,
        )
    except ArraysError as error:  # its message has the names of the arrays in `Arrays`
        named = str(error).replace("x_train", "images").replace("y_train", "labels").replace("x_public", "public")
        raise ArraysError(named) from None
    if x.dtype == np.uint8 and not all(0 <= value <= 1 for value in (*arrays.mean, *arrays.std)):
        values = f"got {list(arrays.mean)} and {list(arrays.std)}. Divide those of pixels 0..255 by 255"
        raise SpecError(f"settings.data: mean and std: expected values from 0 to 1, {values}")
    if public is None and settings.make_method().needs_public:
        raise SpecError(f"public: {settings.method['name']} needs public images, the same at the server and every site")
    train, nobody = settings.make_train(), Partition(np.arange(0), np.zeros(2, np.int64), np.zeros(0, bool), {})
    world = World(arrays, arrays.y_train, nobody, train, settings.seed)
    check_pools(settings.method["name"], settings.make_method(), train, world)
    return arrays


def _write_folder(
    folder: Path,
    settings: RunSettings,
    name: str,
    arrays: Mapping[str, np.ndarray | None],
    client: int,
    release_seed: int,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # a site's rows are its own
    write_json(folder / RUN, vars(settings))
    present = {key: array for key, array in arrays.items() if array is not None}
    save_npz(folder / name, present, {"artifact": "federation", "client": client, "release_seed": release_seed})
