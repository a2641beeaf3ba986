"""Yu et al.'s (2025) FedDyn."""

import torch
import toy


def test_rounds_by_hand():
    """c_k += theta_g - theta_k; theta_g <- mean theta_k - mu sum c_k over the cohort, whoever was drawn before."""
    fed, method, state = toy.started("feddyn_efc", {"mu": 0.3}, net=toy.toy_net(toy.normed_body), train={"lr": 0.05})
    n = state.server["model"].layout.trained
    control = {c: torch.zeros(n) for c in fed.all}
    for clients in ([0, 3], [3, 5, 6], [0]):
        start = state.server["model"].clone()
        updates = toy.round_of(method, fed, state, clients)
        for c, update in zip(clients, updates, strict=True):
            control[c] = control[c] + start.trained - update["model"].trained
            torch.testing.assert_close(state.clients[c]["control"], control[c], rtol=0, atol=1e-6)
        mean = torch.stack([update["model"].flat for update in updates]).mean(0)
        mean[:n] -= 0.3 * sum(control[c] for c in clients)  # running statistics are averaged only
        torch.testing.assert_close(state.server["model"].flat, mean, rtol=1e-5, atol=1e-5)
        assert set(updates[0]) == {"model", "control"}
