"""The real data sets: what `../shared/data/unpack.py` makes, or FEDNOISE_DATA. Skipped where there is neither."""

import numpy as np
import pytest
from real_files import real_folder

from fednoise_core.data import sources
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.data.settings import load_source

pytestmark = pytest.mark.real_data
SHAPES = {
    "mnist": (28, 28),
    "fashion_mnist": (28, 28),
    "cifar10": (32, 32, 3),
    "cifar100": (32, 32, 3),
}


@pytest.mark.parametrize("source", list(SHAPES))
def test_npz_and_raw_files_give_the_arrays_bit_for_bit(source, tmp_path):
    folder = real_folder()
    raw = tmp_path / "raw"  # the same folder without the npz files
    raw.mkdir()
    top = load_source(source).raw[0].split("/")[0]
    if not (folder / top).exists():
        pytest.skip("the folder has no raw files")
    (raw / top).symlink_to(folder / top)
    arrays = sources.read({"source": source}, [raw], tmp_path / "cache")
    packed = sources.read({"source": source}, [folder], tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    assert arrays.source_sha256 == packed.source_sha256
    with np.load(folder / f"{source}.npz", allow_pickle=False) as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            np.testing.assert_array_equal(getattr(arrays, name), archive[name])
            np.testing.assert_array_equal(getattr(packed, name), archive[name])
        if source == "cifar100":
            np.testing.assert_array_equal(arrays.coarse[arrays.y_train], archive["y_coarse_train"])
            np.testing.assert_array_equal(arrays.coarse[arrays.y_test], archive["y_coarse_test"])
    assert arrays.x_train.shape[1:] == SHAPES[source]
    mean, std = mean_and_std(arrays.x_train)
    np.testing.assert_allclose(arrays.mean, mean, atol=2e-4)
    np.testing.assert_allclose(arrays.std, std, atol=2e-4)


@pytest.mark.parametrize(
    ("spec", "rates"),
    [
        (
            {"source": "cifar10"},
            {
                "aggre_label": 0.09010,
                "random_label1": 0.17234,
                "random_label2": 0.18122,
                "random_label3": 0.17640,
                "worse_label": 0.40208,
            },
        ),
        ({"source": "cifar100"}, {"noisy_label": 0.40200}),
        ({"source": "cifar100", "labels": "coarse"}, {"noisy_coarse_label": 0.26404}),
    ],
)
def test_human_labels_have_the_published_noise_rates(spec, rates, tmp_path):
    arrays = sources.read({**spec, "human": True}, [real_folder()], tmp_path)
    assert set(arrays.given) == set(rates)
    for key, rate in rates.items():
        assert abs((arrays.given[key] != arrays.y_train).mean() - rate) < 1e-5
