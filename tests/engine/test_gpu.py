"""On a GPU every method gives nearly the losses and norms of the CPU, and the same bits in a second run.

There is no GPU in CI.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import toy

from fednoise_core.api.simulate import run_federation
from fednoise_core.methods import METHODS, method_class
from fednoise_core.testing.compare import golden_numbers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

MLP = {"name": "mlp", "hidden": 6}
NORMED = {"name": "small_cnn", "width": 2, "hidden": 6, "norm": True}  # its tensors begin at odd places of the buffer
NETS = {"mlp": MLP, "normed": NORMED, "module": {"name": "module", "factory": "mynets:Normed"}}
CASES = [
    pytest.param(name, net, id=f"{name} {label}")
    for name in METHODS
    for label, net in ({"pair": [MLP, NORMED]} if method_class(name).several_nets else NETS).items()
]


@pytest.fixture(autouse=True)
def _fixed_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def play(name: str, net: Any, **options: Any) -> dict[str, Any]:
    """Numbers of a run on the small world. options: those of `run_federation`."""
    method, train = toy.settings(name, net=net)
    run = run_federation(toy.arrays(), toy.toy_labels(), toy.toy_partition(), method, train, **options)
    return {key: value for key, value in golden_numbers(run).items() if key in ("accuracy", "loss", "norms")}


@pytest.mark.parametrize(("name", "net"), CASES)
def test_a_gpu_gives_the_numbers_of_the_cpu(name, net):
    if name == "confident_prestop":
        pytest.importorskip("cleanlab")
    expected = play(name, net)
    once, again = (play(name, net, device="cuda") for _ in range(2))
    assert json.dumps(once) == json.dumps(again)
    for key, values in expected.items():  # FedMixCon's differ by up to 0.002, the others' by up to 0.0003
        assert once[key] == pytest.approx(values, rel=5e-3, abs=5e-3)
