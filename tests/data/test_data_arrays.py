import dataclasses

import numpy as np
import pytest

from fednoise_core.data import splits
from fednoise_core.data.arrays import Arrays, ArraysError
from fednoise_core.io import ArtifactError, SpecError, load_npz, open_atomic, save_npz


def example(n: int = 30, **changes) -> Arrays:
    draw = np.random.default_rng(0)
    arrays = Arrays(
        x_train=draw.integers(0, 256, (n, 5, 4, 3), dtype=np.uint8),
        y_train=np.arange(n, dtype=np.int64) % 3,
        x_test=draw.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8),
        y_test=np.arange(6, dtype=np.int64) % 3,
        classes=3,
        mean=(0.1, 0.2, 0.3),
        std=(1.0, 0.5, 0.25),
        given={"worst": (np.arange(n, dtype=np.int64) + 1) % 3},
        client=np.arange(n, dtype=np.int64) // 10,
        coarse=np.array([0, 0, 1]),
        names=("a", "b", "ç"),
        spec={"source": "npz"},
        source_sha256={"x_train": "00"},
    )
    return dataclasses.replace(arrays, **changes)


def same(a: Arrays, b: Arrays) -> None:
    for key in ("x_train", "y_train", "x_test", "y_test", "client", "coarse"):
        np.testing.assert_array_equal(getattr(a, key), getattr(b, key))
    assert a.given.keys() == b.given.keys()
    for key in a.given:
        np.testing.assert_array_equal(a.given[key], b.given[key])
    for key in ("classes", "mean", "std", "names", "clean_known", "spec", "source_sha256"):
        assert getattr(a, key) == getattr(b, key)


def test_an_artifact_comes_back_as_it_was_and_its_bytes_repeat(tmp_path):
    arrays = example()
    arrays.save(tmp_path / "a.npz")
    same(arrays, Arrays.load(tmp_path / "a.npz"))
    Arrays.load(tmp_path / "a.npz").save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_big_images_go_to_a_memory_mapped_file(tmp_path):
    arrays = example(n=600)  # more than two blocks
    arrays.save(tmp_path / "a.npz", side_bytes=1000)
    back = Arrays.load(tmp_path / "a.npz")
    assert isinstance(back.x_train, np.memmap)
    assert not isinstance(back.x_test, np.memmap)  # 360 bytes
    same(arrays, back)
    np.testing.assert_array_equal(back.x_train[np.array([599, 3])], arrays.x_train[[599, 3]])
    side = tmp_path / "a.x_train.npy"
    data = side.read_bytes()
    side.write_bytes(data[:-1])
    with pytest.raises(ArtifactError, match=r"a\.x_train\.npy: missing or damaged: \d+ bytes"):
        Arrays.load(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.zeros((30, 5, 4, 3))}, "x_train is float64, not uint8"),
        ({"x_test": np.zeros((6, 4, 4, 3), np.uint8)}, "x_test has images"),
        ({"y_train": np.full(30, 3)}, r"y_train holds 3\.\.3; labels are 0\.\.2"),
        ({"y_test": np.array([-1, 0, 0, 0, 0, 0])}, r"y_test holds -1\.\.0"),
        ({"y_train": np.zeros(29, np.int64)}, r"y_train has shape \(29,\)"),
        ({"given": {"worst": np.zeros(30, np.int32)}}, "given_worst is int32"),
        ({"client": np.zeros(4, np.int64)}, "client has shape"),
        ({"names": ("a", "b")}, "2 class names for 3 classes"),
        ({"x_train": np.zeros((30, 5, 4, 3), np.float32)}, r"x_train is float32.*np\.rint\(255 \* x\)\.astype"),
        ({"x_train": [[1]]}, "x_train is of type list; a numpy array is needed"),
        ({"x_public": np.zeros((2, 5, 4), np.uint8)}, r"x_public has images \(5, 4\)"),
        ({"x_train": np.zeros((30, 3, 5, 6), np.uint8)}, r"channels first; .*x_train\.transpose\(0, 2, 3, 1\)"),
        ({"x_train": np.zeros((30, 5, 4, 0), np.uint8)}, "it holds no pixel"),
        ({"y_train": np.arange(30) % 3 + 1}, r"y_train holds 1\.\.3; labels are 0\.\.2; .*subtract 1"),
        ({"y_train": [0] * 30}, "y_train is of type list"),
        ({"y_test": np.zeros(6, np.uint8)}, r"y_test is uint8, not int64: y_test\.astype"),
        ({"names": ("a", "b", "a")}, "names: 'a' comes twice"),
        ({"names": ("a", "b\nc", "d")}, r"class name 'b\\nc'.*one line"),
        ({"names": ("a", "", "d")}, "class name ''"),
        ({"given": {"a\n": np.zeros(30, np.int64)}}, r"key of given 'a\\n'"),
        ({"std": (1.0, 0.0, 1.0)}, "finite numbers above 0"),
        ({"std": (1.0, float("inf"), 1.0)}, "finite"),
        ({"mean": (0.1, float("nan"), 0.3)}, "mean is .*finite"),
        ({"classes": 2.5}, "classes is 2.5"),
        ({"mean": (0.5,)}, r"mean and std need 3 value\(s\)"),
        ({"classes": 1}, "at least 2"),
    ],
)
def test_inconsistent_arrays_are_refused(change, message):
    with pytest.raises(ArraysError, match=message):
        example(**change)


def test_inconsistent_arrays_in_a_file_are_refused_with_its_name(tmp_path):
    example().save(tmp_path / "a.npz")
    for key, value, message in (
        ("y_train", np.full(30, 3), r"y_train holds 3\.\.3; labels are 0\.\.2"),
        ("names", np.array(["a", "b\nc", "d"]), "class name 'b\\\\nc'"),
    ):
        arrays, spec = load_npz(tmp_path / "a.npz", "arrays")
        save_npz(tmp_path / "b.npz", {**arrays, key: value}, spec)
        with pytest.raises(ArtifactError, match=rf"b\.npz: {message}"):
            Arrays.load(tmp_path / "b.npz")
    arrays, spec = load_npz(tmp_path / "a.npz", "arrays")
    save_npz(tmp_path / "b.npz", arrays, {**spec, "std": 3})
    with pytest.raises(ArtifactError, match=r"b\.npz"):
        Arrays.load(tmp_path / "b.npz")


def test_a_truncated_or_foreign_file_is_named(tmp_path):
    path = tmp_path / "a.npz"
    example().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    np.savez(tmp_path / "deep.npz", spec="[" * 100_000)
    np.savez(tmp_path / "twice.npz", a=0, b=0)
    (tmp_path / "twice.npz").write_bytes((tmp_path / "twice.npz").read_bytes().replace(b"b.npy", b"a.npy"))
    for name, problem in (
        ("a.npz", "damaged arrays artifact"),
        ("deep.npz", r"damaged arrays artifact \(RecursionError"),
        ("twice.npz", "damaged arrays artifact .*occurs twice"),
        ("/dev/null", "no such file, or not a regular one"),
    ):
        with pytest.raises(ArtifactError, match=f"{name}: {problem}"):
            Arrays.load(tmp_path / name)
    with pytest.raises(OSError, match=r"^odd\Z"), open_atomic(path):
        raise OSError("odd")  # its text is kept


def test_shares_are_largest_remainders():
    # 10 of (50, 30, 21): exact 4.95, 2.97, 2.08 -> floors 4, 2, 2; the two largest remainders get one more
    np.testing.assert_array_equal(splits.split_shares(np.array([50, 30, 21]), 10), [5, 3, 2])
    np.testing.assert_array_equal(splits.split_shares(np.array([5, 5]), 1), [1, 0])


def test_public_and_subset_are_disjoint_stratified_and_independent(tmp_path):
    arrays = example(n=300, x_train=_numbered(300))
    split = splits.apply_split(arrays, {"public": 60, "subset": {"train": 90, "test": 3}, "split_seed": 4})
    public = splits.apply_split(arrays, {"public": 60, "split_seed": 4})
    np.testing.assert_array_equal(split.x_public, public.x_public)  # a subset does not move the public part
    taken, private = _numbers(split.x_public), _numbers(split.x_train)
    assert len(set(taken)) == 60
    assert len(set(private)) == 90
    assert not set(taken) & set(private)
    np.testing.assert_array_equal(np.bincount(taken % 3), [20, 20, 20])
    np.testing.assert_array_equal(np.bincount(split.y_train), [30, 30, 30])
    np.testing.assert_array_equal(split.y_train, private % 3)
    np.testing.assert_array_equal(split.given["worst"], (private + 1) % 3)
    np.testing.assert_array_equal(split.client, private // 10)
    np.testing.assert_array_equal(np.bincount(split.y_test), [1, 1, 1])
    other = splits.apply_split(arrays, {"public": 60, "split_seed": 5})
    assert not np.array_equal(_numbers(other.x_public), taken)


def test_more_than_there_is_cannot_be_taken():
    with pytest.raises(SpecError, match="subset: train: 31, but there are 30"):
        splits.apply_split(example(), {"subset": {"train": 31}})
    with pytest.raises(SpecError, match="public: 30 leaves nothing"):
        splits.apply_split(example(), {"public": 30})


def _numbered(n: int) -> np.ndarray:
    x = np.zeros((n, 5, 4, 3), np.uint8)
    x[:, 0, 0, 0], x[:, 0, 0, 1] = np.arange(n) % 256, np.arange(n) // 256
    return x


def _numbers(x: np.ndarray) -> np.ndarray:
    return x[:, 0, 0, 0].astype(np.int64) + 256 * x[:, 0, 0, 1].astype(np.int64)
