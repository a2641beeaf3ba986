"""A method whose parts are switched off, or that is still in its warm-up, is another method."""

import functools

import pytest
import torch
import toy


@functools.cache
def model(name: str, **fields: object) -> torch.Tensor:
    """The model, or both nets, that the server holds after a run."""
    server = toy.play(name, method=fields).outcome.state.server
    return torch.cat([server[key].flat for key in ("model", "one", "two") if key in server])


UNIFORM = {"weighting": "uniform"}
TEACHING = {"forget_rate": 0.4, "ramp": 2}
ROFL = {"centroid": 0.0, "entropy": 0.0, "forget_rate": 0.0, "label_rounds": 9, "ramp": 1}
CORES = {"beta_schedule": "cores", "beta_start": 2, "beta_lr": True}
EXACT = [  # method, settings without a part and with it; the equal method and its settings
    ("coteaching_plus", {**TEACHING, "warmup": 3}, {**TEACHING, "warmup": 2}, "coteaching", TEACHING),
    *(("ditto_efc", {"strength": s}, {"strength": s + 0.1}, "fedprox", {"mu": 2 * s}) for s in (0.0, 0.1, 0.7)),
    ("feddecorr", {"beta": 0.0}, {}, "fedavg", {}),
    ("feddiv", {"warmup": 3}, {"warmup": 2}, "fedavg", {}),
    ("feddpcont", {**CORES, "beta_rise": 1}, {**CORES, "beta_start": 1}, "fedavg", {}),
    ("feddyn", {"alpha": 0.0}, {"alpha": 1e-9}, "fedavg", UNIFORM),  # alpha to 0 is not: the server's drift stays
    ("feddyn_efc", {"mu": 0.0}, {"mu": 0.01}, "fedavg", UNIFORM),
    ("fedprox", {"mu": 0.0}, {"mu": 0.1}, "fedavg", {}),
    ("fedrn", {"warmup": 3}, {}, "fedavg", {}),
    ("krum", {"average": 0, "faulty": 0.0}, {}, "fedavg", UNIFORM),
    ("mdyr", {"warmup": 3}, {"warmup": 2}, "mixup", {"alpha": 32.0}),
    ("mixup", {"alpha": 0.0}, {}, "fedavg", {}),
    ("moon", {"mu": 0.0}, {}, "fedavg", {}),
    ("rfa", {"iterations": 0}, {}, "fedavg", {}),
    # lambda_cen = lambda_e = 0, tau = 0, t < T_pl: mean CE on the given labels over the whole batch
    *(
        ("rofl", ROFL, ROFL | on, "fedavg", {})
        for on in ({"centroid": 0.5}, {"entropy": 0.5}, {"forget_rate": 0.4}, {"label_rounds": 1})
    ),
    ("selfie", {"noise_rate": 0.4, "warmup": 3}, {"noise_rate": 0.4, "warmup": 2}, "fedavg", {}),
]


@pytest.mark.parametrize(("name", "off", "on", "base", "fields"), EXACT)
def test_without_a_part_it_is_another_method_bit_for_bit(name, off, on, base, fields):
    assert torch.equal(model(name, **off), model(base, **fields))
    assert not torch.allclose(model(name, **on), model(base, **fields), atol=1e-4)


MOMENTUM = {"server_optimiser": "momentum"}
CLOSE = [
    ("fedelr", {"strength": 0.0}, {}, "fedavg", {}),  # log(1 - <p, t>) times 0 adds nothing to the gradient
    ("fedopt", {**MOMENTUM, "beta1": 0.0}, MOMENTUM, "fedavg", {}),
    ("label_smoothing", {"smoothing": 0}, {}, "fedavg", {}),
    # no sure sample: no client takes 15 epochs in three rounds of two
    ("selfie", {"noise_rate": 0.0, "warmup": 1, "memory": 15}, {}, "fedavg", {}),
    ("trimmed_mean", {"trim": 0.0}, {}, "fedavg", UNIFORM),
]


@pytest.mark.parametrize(("name", "off", "on", "base", "fields"), CLOSE)
def test_without_a_part_it_is_another_method_up_to_rounding(name, off, on, base, fields):
    torch.testing.assert_close(model(name, **off), model(base, **fields), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(model(name, **on), model(base, **fields), atol=1e-3)
