"""Human and given labels, open-set images, instance-dependent noise."""

import numpy as np
import pytest
from real_files import real_labels
from scipy import stats

from fednoise_core.data.labelled import LabelledData
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.noise import observed
from fednoise_core.noise import registry as noise
from fednoise_core.noise.instance import instance
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.registry import nominal_rate
from fednoise_core.noise.sampling import realised_matrix


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("dataset", "labels", "rate"),
    [
        ("cifar10", "aggregate", 0.09010),
        ("cifar10", "random1", 0.17234),
        ("cifar10", "random2", 0.18122),
        ("cifar10", "random3", 0.17640),
        ("cifar10", "worst", 0.40208),
        ("cifar100", "fine", 0.40200),
    ],
)
def test_human_noise_rates(dataset, labels, rate) -> None:
    key = observed.HUMAN[labels][0]
    K = 10 if dataset == "cifar10" else 100
    source = LabelledData(real_labels(dataset), K, given={key: real_labels(dataset, key)})
    result = noise.inject(source, {"kind": "human", "labels": labels}, 0)
    assert abs(result.rate - rate) < 1e-5
    assert result.T_nominal is None
    assert result.nominal_rate is None


def test_human_and_given_pick_the_right_set() -> None:
    y, a, b = np.zeros(4, int), np.array([0, 1, 0, 1]), np.array([1, 1, 1, 1])
    sets = {"aggre_label": a, "worse_label": b}
    assert observed.human(y, 2, rng(), given=sets, labels="worst").y_noisy.mean() == 1
    assert observed.human(y, 2, rng(), given={"worst": a}, labels="worst").y_noisy.mean() == 0.5
    with pytest.raises(SpecError, match="no 'fine' labels"):
        observed.human(y, 2, rng(), given=sets, labels="fine")
    with pytest.raises(SpecError, match="did you mean 'worst'"):
        observed.human(y, 2, rng(), given=sets, labels="worse")
    assert observed.given(y, 2, rng(), given=sets, clean_known=True, key="worse_label").y_noisy.mean() == 1
    assert observed.given(y, 2, rng(), given={"x": a}, clean_known=True).y_noisy.mean() == 0.5
    for key in (None, "other"):
        with pytest.raises(SpecError, match="key"):
            observed.given(y, 2, rng(), given=sets, clean_known=True, key=key)


def test_unknown_clean_labels_stay_unknown() -> None:
    source = LabelledData(np.array([0, 1, 1]), 2, clean_known=False)
    labels = noise.inject(source, {"kind": "given"}, 0)
    assert labels.noisy.tolist() == [0, 1, 1]
    assert labels.clean is None
    assert labels.wrong is None
    assert labels.T_realised is None
    assert np.isnan(labels.rate)
    with pytest.raises(SpecError, match="unknown; use kind: given"):
        noise.inject(source, {"kind": "symmetric", "rate": 0.2}, 0)


def test_openset_images_replace_exactly_the_share() -> None:
    images = np.zeros((50, 4, 4), np.uint8)
    donors = np.arange(1, 31, dtype=np.uint8)[:, None, None] * np.ones((1, 4, 4), np.uint8)
    source = LabelledData(np.tile(np.arange(5), 10), 5, arrays=type("A", (), {"x_train": images, "x_public": donors}))
    labels = noise.inject(source, {"kind": "openset_images", "rate": 0.3}, 0)
    assert np.array_equal(labels.noisy, source.y)
    assert len(set(labels.donor.tolist())) == 15  # without replacement
    assert labels.rate == 0.3
    new_images = labels.replace_images(images, donors)
    assert np.array_equal(np.flatnonzero(new_images.reshape(50, -1).any(1)), labels.replaced)
    assert np.array_equal(new_images[labels.replaced], donors[labels.donor])
    assert not images.any()  # the input is not changed
    dense = noise.inject(source, {"kind": "openset_images", "rate": 0.8}, 0)
    assert len(dense.replaced) == 40  # more than donors: some appear twice


def test_openset_images_from_another_data_set() -> None:
    spec = {"kind": "openset_images", "rate": 0.5, "donor": "other"}
    source = LabelledData(np.tile(np.arange(5), 4), 5)
    donor_data = LabelledData(np.zeros(7, int), 2, arrays=type("A", (), {"x_train": np.zeros((7, 2, 2, 3), np.uint8)}))
    assert noise.needs_donor(spec) == "other"
    assert noise.needs_donor({"kind": "openset_images", "rate": 0.5}) is None
    labels = noise.inject(source, spec, 0, donor=donor_data)
    assert labels.donor.max() < 7
    with pytest.raises(SpecError, match="needs the arrays of data set 'other'"):
        noise.inject(source, spec, 0)


def test_donor_images_that_do_not_fit_are_refused() -> None:
    labels = Labels(np.zeros(3, int), 0.0, {"classes": 2}, replaced=np.array([1]), donor=np.array([9]))
    with pytest.raises(ArtifactError, match="needs donor image 9"):
        labels.replace_images(np.zeros((3, 2, 2), np.uint8), np.zeros((2, 2, 2), np.uint8))
    with pytest.raises(SpecError, match=r"donor: its images are \[4, 4\], those of this data set \[2, 2\]"):
        labels.replace_images(np.zeros((3, 2, 2), np.uint8), np.zeros((10, 4, 4), np.uint8))


def test_instance_rate_and_nominal_matrix() -> None:
    y = np.tile(np.arange(5), 2000)
    x = rng(1).integers(0, 256, (len(y), 6, 6), dtype=np.uint8)
    result = instance(y, 5, rng(), images=x, rate=0.4)
    assert abs((result.y_noisy != y).mean() - 0.4) < 5 * np.sqrt(0.24 / len(y))
    assert np.allclose(np.diagonal(result.T_nominal), 0.6, atol=5 * 0.1 / np.sqrt(2000))  # mean of 2000 q's, sd .1
    q = stats.truncnorm(-4, 6, loc=0.4, scale=0.1).ppf(rng().random(len(y)))  # the first draws of the generator
    assert np.allclose(np.diagonal(result.T_nominal), [1 - q[y == k].mean() for k in range(5)])
    sd = np.sqrt(result.T_nominal * (1 - result.T_nominal) / 2000)
    assert (np.abs(realised_matrix(y, result.y_noisy, 5) - result.T_nominal) <= 5 * sd + 1e-9).all()
    clean = instance(y, 5, rng(), images=x, rate=0)
    assert np.array_equal(clean.y_noisy, y)


def test_instance_states_the_mean_of_its_truncated_rates() -> None:
    y = np.tile(np.arange(5), 4000)
    x = rng(1).integers(0, 256, (len(y), 2, 2), dtype=np.uint8)
    for rate in (0.05, 0.1, 0.2, 0.4):
        stated = nominal_rate({"kind": "instance", "rate": rate}, 5)
        assert stated is not None
        wrong = instance(y, 5, rng(), images=x, rate=rate).y_noisy != y
        assert abs(wrong.mean() - stated) < 4 * np.sqrt(stated * (1 - stated) / len(y))
    assert stated == 0.4
    assert nominal_rate({"kind": "instance", "rate": 0.05}, 5) == 0.101
    assert nominal_rate({"kind": "instance", "rate": 0}, 5) == 0


def test_instance_target_is_a_function_of_the_image() -> None:
    # 0..255 pixels make the softmax nearly one-hot: equal images of a class flip to the same class
    x = np.repeat(rng(1).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8), 50, axis=1).reshape(1000, 8, 8)
    y = np.repeat(np.arange(20) % 4, 50)
    noisy = instance(y, 4, rng(), images=x, rate=0.5).y_noisy
    for group in range(20):
        part = noisy[group * 50 : group * 50 + 50]
        assert len(set(part[part != group % 4])) == 1
    unit = instance(y, 4, rng(), images=x, rate=0.5, scale="unit").y_noisy
    assert max(len(set(unit[g * 50 : g * 50 + 50])) for g in range(20)) > 2


def test_instance_follows_the_original_order_with_a_legacy_generator() -> None:
    y = rng(2).integers(0, 3, 60)
    x = rng(3).integers(0, 256, (60, 2, 2), dtype=np.uint8)
    legacy = np.random.RandomState(7)
    q = stats.truncnorm((0 - 0.3) / 0.1, (1 - 0.3) / 0.1, loc=0.3, scale=0.1).ppf(legacy.uniform(size=60))
    W = legacy.randn(3, 4, 3).astype(np.float32)
    P = []
    for n in range(60):
        A = x[n].reshape(-1).astype(np.float64) @ W[y[n]].astype(np.float64)
        A[y[n]] = -np.inf
        p = q[n] * np.exp(A - A.max()) / np.exp(A - A.max()).sum()
        p[y[n]] += 1 - q[n]
        P.append(p / p.sum())
    expected = [legacy.choice(3, p=p) for p in P]
    result = instance(y, 3, np.random.RandomState(7), images=x, rate=0.3)
    assert result.y_noisy.tolist() == expected
    source = LabelledData(y, 3, arrays=type("A", (), {"x_train": x}))
    labels = noise.inject(source, {"kind": "instance", "rate": 0.3, "noise_seed": 7}, 123)
    assert labels.noisy.tolist() == expected
