"""FedMixCon a second time, from the equations of Peng et al. (2025) alone: torch modules, autograd and torch.optim
in float64. It takes from the run: images, first weights, the order of batches, and the random numbers drawn.
"""

import itertools
import math
from typing import Any

import pytest
import torch
import toy
import toy64
from torch import Tensor, nn

from fednoise_core.data.augment import Rotate
from fednoise_core.engine.local import Batch
from fednoise_core.methods.fedmixcon import FedMixCon
from fednoise_core.settings.declare import build_settings

BLACK = -1.25  # normalised: (0 - .25)/.2
TRAIN = {"lr": 0.15, "momentum": 0.9, "weight_decay": 1e-4, "batch": 6}
RAMP = 2


def normed(ops, x):
    return toy.normed_body(ops, x.double())


class Module(nn.Module):
    """The same net: features, and a linear layer on them."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(27, 5)
        self.double().load_state_dict(state)


NAMES = {"conv": "features.0", "norm": "features.1", "head": "head"}


def numbers_of(w) -> dict[str, Tensor]:
    """A model's numbers, by the names of `Module`."""
    tensors = {f"{NAMES[name.split('.')[0]]}.{name.split('.')[1]}": w[name].clone() for name in w.views}
    assert all(tensor.dtype == torch.float64 for tensor in tensors.values())
    return {**tensors, "features.1.num_batches_tracked": torch.tensor(0)}


def turned(image: Tensor, degrees: float) -> Tensor:
    """[1, 8, 8] rotated about its centre, counter-clockwise, to the nearest pixel."""
    out, angle = torch.full_like(image, BLACK), math.radians(degrees)
    for row, col in itertools.product(range(8), range(8)):
        x, y = col - 3.5, 3.5 - row  # y points up
        from_x = x * math.cos(angle) + y * math.sin(angle)
        from_y = y * math.cos(angle) - x * math.sin(angle)
        from_row, from_col = round(3.5 - from_y), round(from_x + 3.5)
        if 0 <= from_row < 8 and 0 <= from_col < 8:
            out[0, row, col] = image[0, from_row, from_col]
    return out


def loss_of(
    net: Module, x: Tensor, x_aug: Tensor, y: Tensor, share: float, mu: float, options: dict[str, Any]
) -> Tensor:
    """L = mu L_con + L_ce."""
    z, z_aug = net.features(x), net.features(x_aug)
    p = share * torch.softmax(net.head(z), 1) + (1 - share) * torch.softmax(net.head(z_aug), 1)
    sharpened = p ** (1 / 0.5) / (p ** (1 / 0.5)).sum(1, keepdim=True)
    if options["ce_mode"] == "log":
        ce = -torch.log(sharpened[range(len(y)), y]).mean()
    else:
        ce = nn.CrossEntropyLoss()(sharpened, y)  # as FedLSR's code, which takes p_s for logits
    if options.get("contrast_on") == "logits":
        z, z_aug = net.head(z), net.head(z_aug)
    sim, total, tau = nn.CosineSimilarity(dim=0), z.new_zeros(()), 0.5
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i and (y[j] != y[i] or options["denominator"] == "all")]
        if others:
            positive = torch.exp(sim(z[i], z_aug[i]) / tau)
            below = sum(torch.exp(sim(z[i], z[j]) / tau) for j in others)
            total = total - torch.log(positive / (below + positive * (options["denominator"] == "negatives+positive")))
    return mu * total / len(y) + ce


def local_training(start: dict[str, Tensor], steps: list[dict[str, Any]], mu: float, options: dict[str, Any]):
    """Torch's SGD from the broadcast model. Returns the new model's numbers, and the loss of every step."""
    net = Module(start).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.15, momentum=0.9, weight_decay=1e-4)
    seen = []
    for step in steps:
        angles = [(2 * float(u) - 1) * 30 for u in step["angle"]]
        x_aug = torch.stack([turned(image, degrees) for image, degrees in zip(step["x"], angles, strict=True)])
        assert torch.equal(x_aug, step["view"])
        loss = loss_of(net, step["x"], x_aug, step["y"], step["share"], mu, options)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append(loss.item())
    return net.state_dict(), seen


def run_library(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], rounds: int = 3):
    """The library's rounds: first model, what each fit saw with the loss of each step, and the model of every round."""
    drawn: list[Tensor] = []
    apply = Rotate.apply

    def noted(self, x, u):
        drawn.append(u.clone())
        return apply(self, x, u.float())

    monkeypatch.setattr(Rotate, "apply", noted)
    seen: dict[tuple[int, int], list[dict[str, Any]]] = {}

    class Watched(FedMixCon):
        def prepare_fit(self, client, broadcast):
            self.__dict__["now"] = seen[client.round, client.id] = []
            return super().prepare_fit(client, broadcast)

        def compute_objective(self, net, w, batch: Batch, broadcast, client_state):
            loss = super().compute_objective(net, w, batch, broadcast, client_state)
            x, view = (images.double() for images in batch.views)
            share = float(batch.u[0, 0])
            entry = {"x": x, "view": view, "y": batch.y, "angle": drawn[-1][:, 0].float(), "share": share, "loss": loss}
            self.__dict__["now"].append({**entry, "loss": loss.item()})
            return loss

    fed = toy.toy_federation(train=TRAIN, net=toy.toy_net(normed))
    method = build_settings(Watched, {"ramp": RAMP, "mu": 0.7, **options}, "method", train=fed.train)
    state = method.init_state(fed)
    models = [numbers_of(state.server["model"])]
    for state.round in range(1, rounds + 1):
        method.run_round(fed, state)
        models.append(numbers_of(state.server["model"]))
    return models, seen


@pytest.mark.parametrize(
    "options",
    [
        {"ce_mode": "double_softmax", "denominator": "negatives"},
        {"ce_mode": "log", "denominator": "negatives+positive"},
        {"ce_mode": "log", "denominator": "all", "per": "batch"},
        {"ce_mode": "double_softmax", "denominator": "negatives", "contrast_on": "logits"},
    ],
    ids=lambda options: ", ".join(options.values()),
)
def test_three_rounds_loss_by_loss_against_a_second_implementation(options, monkeypatch):
    with toy64.doubled():
        models, seen = run_library(monkeypatch, options)
        current, steps = models[0], 0
        for round in (1, 2, 3):
            clients = toy64.cohort(seen, round)
            assert len(clients) == 4
            mu = 0.7 * min(1.0, (round - 1) / RAMP)
            total = sum(toy.SIZES[c] for c in clients)
            new: dict[str, Tensor] = {}
            for c in clients:
                trained, losses = local_training(current, seen[round, c], mu, options)
                torch.testing.assert_close(
                    torch.tensor(losses), torch.tensor([s["loss"] for s in seen[round, c]]), rtol=0, atol=1e-9
                )
                steps += len(losses)
                for name, tensor in trained.items():
                    new[name] = new.get(name, 0) + toy.SIZES[c] / total * tensor
            current = {**new, "features.1.num_batches_tracked": torch.tensor(0)}
            for name, tensor in models[round].items():
                torch.testing.assert_close(current[name], tensor, rtol=0, atol=1e-9, msg=f"round {round}, {name}")
        assert steps > 20
        moved = max(float((models[3][name] - models[0][name]).abs().max()) for name in models[0])
        assert moved > 0.1
