import json
import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from workflow_scripts.steps import download


def test_digits_splits_into_1187_private_250_public_360_test():
    arrays = sources.read({"source": "digits"})
    assert (arrays.n, len(arrays.x_public), len(arrays.y_test)) == (1187, 250, 360)
    assert arrays.x_train.shape == (1187, 8, 8)
    assert sources.read_facts({"source": "digits"})[0] == 1187
    assert sources.read_facts({"source": "digits"})[1] == 10
    assert sources.read_facts({"source": "digits", "public": 0, "test": 97})[0] == 1700


def test_every_digit_is_in_exactly_one_part_and_parts_are_stratified():
    arrays = sources.read({"source": "digits"})
    raw = load_digits()
    stored = np.minimum(raw.images.astype(int) * 16, 255)
    parts = np.concatenate([arrays.x_train, arrays.x_public, arrays.x_test]).reshape(1797, 64)
    np.testing.assert_array_equal(np.unique(parts, axis=0), np.unique(stored.reshape(1797, 64), axis=0))
    total, test = np.bincount(raw.target), np.bincount(arrays.y_test)
    assert np.abs(test - total * 360 / 1797).max() < 1
    label_of = {image.tobytes(): label for image, label in zip(stored.astype(np.uint8), raw.target, strict=True)}
    assert [label_of[image.tobytes()] for image in arrays.x_train] == arrays.y_train.tolist()
    public = np.bincount([label_of[image.tobytes()] for image in arrays.x_public])
    assert np.abs(public - (total - test) * 250 / 1437).max() < 1


def test_the_split_depends_on_its_seed_only():
    first, again = sources.read({"source": "digits"}), sources.read({"source": "digits", "split_seed": 0})
    np.testing.assert_array_equal(first.x_train, again.x_train)
    reseeded = sources.read({"source": "digits", "split_seed": 1})
    assert not np.array_equal(first.x_test, reseeded.x_test)


def test_the_command_writes_the_artifact(tmp_path, capsys):
    out = tmp_path / "raw" / "digits.npz"
    spec = {"source": "digits", "subset": {"train": 100, "test": 20}}
    assert download.main(["--spec", json.dumps(spec), "--out", str(out)]) == 0
    assert "100 train, 20 test, 250 public, 10 classes, clean labels known" in capsys.readouterr().out
    arrays = Arrays.load(out)
    assert arrays.spec == spec
    assert download.main(["--spec", '{"source": "nothing"}', "--out", str(tmp_path / "b.npz")]) == 2
    assert "unknown dataset 'nothing'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_facts_need_numpy_only():
    code = (
        "import sys; from fednoise_core.data import sources; sources.read_facts({'source': 'digits'})[0];"
        "print([m for m in ('torch', 'torchvision', 'sklearn', 'PIL', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
