"""Settings that are a number of rounds: a share stands for so many, and none makes a run longer than `train.rounds`."""

import pytest
import toy

from fednoise_core.methods import METHODS, make_method, method_class
from fednoise_core.settings.declare import Rounds, settings_of
from fednoise_core.settings.train import Train

LENGTHS = [
    (name, key)
    for name in METHODS
    for key, field in settings_of(method_class(name)).items()
    if field.annotation == Rounds
]
FEDCORR = ("fedcorr", "tune_rounds"), ("fedcorr", "full_rounds")  # a round of stage 1 costs several rounds


def phases(name: str, rounds: int, **fields: float) -> list[tuple[str, int]]:
    """(name, last round) of each phase, with what the method requires taken from its example."""
    cls = method_class(name)
    needed = {key: cls.example[key] for key, field in settings_of(cls).items() if field.is_required()}
    method = make_method({"name": name, **needed, **fields}, Train(rounds=rounds))
    return [(phase.name, phase.end) for phase in method.list_phases(toy.toy_federation())]


def test_there_are_such_settings():
    assert {("fednoro", "warmup"), ("fedelc", "warmup"), ("fedrn", "warmup"), ("lc", "switch"), *FEDCORR} <= {*LENGTHS}


@pytest.mark.parametrize(("name", "key"), LENGTHS)
def test_a_share_of_all_rounds(name, key):
    assert phases(name, 10, **{key: 0.5}) == phases(name, 10, **{key: 5})


@pytest.mark.parametrize(("name", "key"), [case for case in LENGTHS if case not in FEDCORR])
def test_a_number_beyond_the_last_round_makes_no_run_longer(name, key):
    assert max(end for _, end in phases(name, 3, **{key: 50})) == 3


def test_by_default_the_warm_up_of_dividemix_is_a_tenth_of_the_rounds_rounded_up():
    lengths = [make_method({"name": "dividemix"}, Train(rounds=r)).warm_rounds for r in (1, 3, 10, 11, 25, 300)]
    assert lengths == [1, 1, 1, 2, 3, 30]
    assert make_method({"name": "dividemix", "warmup": 7}, Train(rounds=300)).warm_rounds == 7
