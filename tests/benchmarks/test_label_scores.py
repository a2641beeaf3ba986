"""The scores of `benchmarks.rank_labels` on made predictions."""

import numpy as np

from benchmarks.label_scores import count_wrong, judge, judge_by_number, match_number
from fednoise_core.engine.truth import auroc


def predict(clean: np.ndarray, known: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Log-probabilities [n, 5] of a model that is right, and sure, the more often the larger `known` [n] is."""
    z = draw.normal(0, 1, (len(clean), 5)) * known[:, None] / 3
    z[np.arange(len(clean)), clean] += known
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def test_numbers_and_order_of_a_model_that_has_learnt_its_classes():
    draw = np.random.default_rng(0)
    site, clean = np.repeat(np.arange(4), 500), draw.integers(0, 5, 2000)
    wrong = draw.random(2000) < np.array([0.02, 0.1, 0.3, 0.2])[site]
    given = np.where(wrong, (clean + 1) % 5, clean)
    log_p = predict(clean, np.full(2000, 3.0), draw)
    counts = count_wrong(log_p, given, site)
    for one, number in zip(counts, np.bincount(site, wrong), strict=True):
        assert one.told
        assert one.low <= number <= one.high
        assert abs(one.wrong - number) < 20
    found = judge_by_number(log_p, log_p, given, site, counts)
    own = 1 - np.exp(log_p[np.arange(2000), given])
    assert auroc(found, wrong) > auroc(own, wrong)
    assert abs(found.sum() - wrong.sum()) < 40
    assert np.isclose(match_number(log_p[:500], given[:500], 20).sum(), 20, rtol=0.05)


def test_a_site_of_hard_images_is_not_told():
    """Its model doubts half of the images: the labels there are right, but nothing shows it."""
    draw = np.random.default_rng(1)
    site, given = np.repeat(np.arange(3), 400), draw.integers(0, 5, 1200)
    hard = (site == 2) & (draw.random(1200) < 0.7)
    log_p = predict(given, np.full(1200, 3.0), draw)
    log_p[hard] = np.log(draw.dirichlet(np.full(5, 9.0), int(hard.sum())))
    counts = count_wrong(log_p, given, site)
    assert [one.told for one in counts] == [True, True, False]
    assert judge(log_p, given, site)[site < 2].sum() < 20
