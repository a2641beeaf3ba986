"""GCE and MAE as methods: their steps, and what they become at the ends of q."""

import pytest
import torch
import toy


def model(name: str, **fields):
    return toy.play(name, method=fields).outcome.state.server["model"].flat


def test_gce_at_the_ends_of_q():
    """(1 - p^q)/q is 1 - p at q = 1, and -log p as q falls to 0: by L'Hopital's rule, with an error of q log(p)^2/2."""
    torch.testing.assert_close(model("gce", q=1.0), model("mae"), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model("gce", q=1e-6), model("fedavg"), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(model("gce", q=0.7), model("fedavg"), atol=1e-3)


@pytest.mark.parametrize(("name", "q"), [("gce", 0.7), ("mae", 1.0)])
def test_one_step_by_hand(name, q):
    """A full-batch step of softmax regression. dL/dz_k = p_y^q (p_k - [k = y]): the gradient of the cross entropy, each
    sample weighed by p_y^q."""
    fed, method, state = toy.started(
        name, train={"epochs": 1, "batch": 20, "lr": 0.3}, net=toy.toy_net(toy.linear_body)
    )
    start = state.server["model"].clone()
    (update,) = toy.round_of(method, fed, state, [0])
    x, y = toy.images_of(fed.world, 0)
    x = x.double().flatten(1)
    p = torch.softmax(x @ start["head.weight"].double().T + start["head.bias"].double(), 1)
    onehot = torch.eye(5, dtype=torch.float64)[y]
    dz = (p * onehot).sum(1, keepdim=True) ** q * (p - onehot) / len(y)
    expected = start["head.weight"].double() - 0.3 * dz.T @ x
    torch.testing.assert_close(update["model"]["head.weight"].double(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        update["model"]["head.bias"].double(), start["head.bias"].double() - 0.3 * dz.sum(0), rtol=1e-4, atol=1e-6
    )
