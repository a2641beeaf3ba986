"""The small world of fednoise_core.testing, and runs of the methods on it with the settings of their cases."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fednoise_core.api.simulate import FinishedRun
from fednoise_core.data.partition import Partition
from fednoise_core.engine.executors.choose import executor_for
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.local import Local
from fednoise_core.engine.loop import Outcome, run_loop
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.state import State
from fednoise_core.engine.truth import Truth
from fednoise_core.engine.world import World
from fednoise_core.methods import make_method, method_class
from fednoise_core.nets.net import Body, Net, Ops
from fednoise_core.settings.train import Train
from fednoise_core.testing.compare import same_state as same_state
from fednoise_core.testing.subject import Subject
from fednoise_core.testing.world import *  # noqa: F403
from fednoise_core.testing.world import CLASSES, PAIR, SIZES, TRAIN, arrays, toy_labels, toy_partition

TWO_NETS = [{"name": "mlp", "hidden": 6}, {"name": "mlp", "hidden": 4}]
A_ROUND = 4 * 2 * 72 / 7  # passes of a round of FedAvg: 4 clients, 2 epochs, 72 samples among 7 clients

# one method of each kind: plain, variates of client and server, two nets, another loss, phases and relabelling,
# released labels and a prior, logits of public images and nets of several kinds, no server
KINDS = ("fedavg", "scaffold", "coteaching", "sce", "fedcorr", "feddpcont", "fedmd", "local")


def subject(name: str) -> Subject:
    """A method with settings under which three rounds on the small world use all its parts."""
    from cases import FIELDS

    net = {"net": PAIR} if method_class(name).several_nets else {}
    return Subject({"name": name, **FIELDS.get(name, {})}, {**TRAIN, **net})


def settings(name: str = "fedavg", **train: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Method and training settings of the same."""
    case = subject(name)
    return dict(case.method), {**case.train, **train}


def play(
    name: str, method: dict[str, Any] | None = None, train: dict[str, Any] | None = None, **options: Any
) -> FinishedRun:
    """A whole run of a method on the small world. options: see Subject.play, where training settings are options."""
    return subject(name).play(method=method, **(train or {}), **options)


def started(
    name: str, method: dict[str, Any] | None = None, train: dict[str, Any] | None = None, **options: Any
) -> tuple[Federation, Any, State]:
    """Federation, method and first state on the small world. options: of `toy_world`."""
    fed = toy_federation(train=train, **options)
    made = make_method({"name": name, **(method or {})}, fed.train)
    return fed, made, made.init_state(fed)


def public_images() -> Tensor:
    """The public images [10, 1, 8, 8], normalised."""
    return (torch.from_numpy(arrays().x_public).float()[:, None] / 255 - 0.25) / 0.2


# federations and rounds


class Plain(Local):
    """FedAvg's client."""

    def __init__(self, train: Train):
        self.train = train


def toy_world(
    train: dict[str, Any] | None = None, seed: int = 0, net: Net | None = None, split: Partition | None = None
) -> World:
    """The World of the small world. train: what differs from `TRAIN`. net: one of the test's own for all clients."""
    world = World(arrays(), toy_labels().noisy, split or toy_partition(), Train(**{**TRAIN, **(train or {})}), seed)
    if net is not None:
        world.nets = [net]
    return world


def toy_federation(**options: Any) -> Federation:
    """A federation of the small world on the executor `sequential`. options: of `toy_world`."""
    world = toy_world(**options)
    return Federation(world, Sequential(world))


@contextlib.contextmanager
def federation_on(executor: str, **options: Any) -> Iterator[Federation]:
    """A federation of the small world on a named executor, which is ended afterwards. options: of `toy_world`."""
    world = toy_world(**options)
    with contextlib.closing(executor_for(world, executor)) as runner:
        yield Federation(world, runner)


def run_method(method: Any, executor: str = "sequential", split: Partition | None = None, **options: Any) -> Outcome:
    """Run a method object, which need not have a name, to its end. options: of `run_loop`."""
    world = toy_world(dataclasses.asdict(method.train), split=split)
    truth = Truth(toy_labels().clean, toy_labels().noisy, [rows.numpy() for rows in world.index], CLASSES)
    test = Pool(arrays().x_test, arrays().mean, arrays().std)
    with contextlib.closing(executor_for(world, executor)) as runner:
        return run_loop(world, runner, method, truth, test, torch.from_numpy(arrays().y_test), **options)


def count_passes(rounds: Iterable[int], per_sample: int = 2, fed: Federation | None = None) -> int:
    """The passes that these rounds (from 1) add to `fed.passes`. per_sample: passes over each sample of the cohort."""
    fed = fed or toy_federation()
    return sum(per_sample * SIZES[c] for r in rounds for c in fed.sample_cohort(r))


def round_of(method: Any, fed: Federation, state: State, clients: list[int] | None = None) -> list[dict[str, Any]]:
    """Play one round with a given cohort, by default all clients with samples. Changes `state`. Gives the updates."""
    state.round += 1
    clients = fed.all if clients is None else clients
    clients, updates = fed.fit(method, state, clients, method.make_broadcast(fed, state))
    method.merge_updates(fed, state, clients, [dict(update) for update in updates])
    return updates


def images_of(world: World, client: int) -> tuple[Tensor, Tensor]:
    """A client's images, normalised float32 [n, 1, 8, 8], and given labels int64 [n], straight from the arrays."""
    rows = world.index[client]
    x = (torch.from_numpy(arrays().x_train)[rows].float() / 255 - 0.25) / 0.2
    return x[:, None], torch.from_numpy(toy_labels().noisy)[rows]


# nets


def linear_body(ops: Ops, x: Tensor) -> Tensor:
    """Flatten the images, which makes the net a softmax regression."""
    return x.flatten(1)


def normed_body(ops: Ops, x: Tensor) -> Tensor:
    """A convolution with batch normalisation."""
    return torch.relu(ops.norm("norm", ops.conv("conv", x, 3, 3, stride=2))).flatten(1)


def normed_dropping_body(ops: Ops, x: Tensor) -> Tensor:
    """A convolution with batch normalisation and dropout of channels."""
    return ops.dropout2d(torch.relu(ops.norm("norm", ops.conv("conv", x, 6, 4, stride=2))), 0.5).flatten(1)


def normed_point(ops: Ops, x: Tensor) -> Tensor:
    """Batch normalisation on a 1x1 map, which cannot be trained on one sample."""
    return torch.relu(ops.norm("norm", ops.conv("conv", x, 4, 8))).flatten(1)


def dropping_body(ops: Ops, x: Tensor) -> Tensor:
    """A convolution with dropout of channels."""
    return ops.dropout2d(F.relu(ops.conv("conv", x, 6, 4, stride=2)), 0.5).flatten(1)


def toy_net(body: Body, **options: Any) -> Net:
    """A net of a test's own body for the small world's images. options: of `Net`."""
    return Net(body.__name__, body, (1, 8, 8), CLASSES, **options)


NETS = {  # for the registry of nets
    "toy_norm": lambda: normed_body,
    "toy_norm_drop": lambda: normed_dropping_body,
    "toy_norm_point": lambda: normed_point,
    "toy_drop": lambda: dropping_body,
}
