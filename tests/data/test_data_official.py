import gzip
import hashlib
import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from toy_data import pretend, pretend_human, toy
from toy_data import web as web

from fednoise_core.data import facts, human, official, sources
from fednoise_core.io import ArtifactError, SpecError

datasets = pytest.importorskip("torchvision.datasets")
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see `web`


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    return header + array.tobytes()


def idx_files(content: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(content["x_train"]),
        "train-labels-idx1-ubyte": idx(content["y_train"]),
        "t10k-images-idx3-ubyte": idx(content["x_test"]),
        "t10k-labels-idx1-ubyte": idx(content["y_test"]),
    }


@pytest.fixture
def mnist(monkeypatch, web):
    """A toy MNIST behind torchvision's addresses."""
    content = toy((6, 5))
    pretend(monkeypatch, "mnist", content)
    web.files |= {f"/{name}.gz": gzip.compress(body) for name, body in idx_files(content).items()}
    monkeypatch.setattr(datasets.MNIST, "mirrors", [web.url])
    monkeypatch.setattr(datasets.MNIST, "resources", [(name[1:], md5(body)) for name, body in web.files.items()])
    return content


def same(arrays, content) -> None:
    for name, array in content.items():
        np.testing.assert_array_equal(getattr(arrays, name), array)
    assert arrays.y_train.dtype == np.int64


def test_mnist_is_downloaded_checked_and_then_read_offline(tmp_path, mnist, web):
    cache = tmp_path / "cache"
    (cache / ".mnist-killed/raw").mkdir(parents=True)  # of a download that was killed
    same(sources.read({"source": "mnist"}, [tmp_path / "nothing"], cache), mnist)
    assert not (cache / ".mnist-killed").exists()
    assert set(web.asked) == set(web.files)
    web.files.clear()
    web.asked.clear()
    same(sources.read({"source": "mnist"}, [], cache), mnist)
    assert web.asked == []
    same(sources.read({"source": "mnist"}, [cache], tmp_path / "other"), mnist)  # it is torchvision's layout


def test_data_root_is_searched_first_npz_or_raw(tmp_path, mnist, web):
    raw, packed = tmp_path / "raw", tmp_path / "packed"
    folder = raw / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name, body in idx_files(mnist).items():
        (folder / name).write_bytes(body)
    packed.mkdir()
    np.savez(packed / "mnist.npz", **mnist, index=np.arange(3))
    for place in (raw, packed):
        same(sources.read({"source": "mnist"}, [tmp_path / "nothing", place], tmp_path / "cache"), mnist)
    assert web.asked == []
    assert not (tmp_path / "cache").exists()
    from_raw, from_npz = (sources.read({"source": "mnist"}, [place], tmp_path / "cache") for place in (raw, packed))
    from_raw.save(tmp_path / "one.npz")
    from_npz.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_without_network_one_error_says_what_where_and_how(tmp_path, mnist, web):
    web.files.clear()
    place = tmp_path / "mine"
    (place / "MNIST" / "raw").mkdir(parents=True)
    files = idx_files(mnist)
    absent = files.popitem()[0]
    for name, body in files.items():
        (place / "MNIST" / "raw" / name).write_bytes(body)
    where = rf"mnist: mnist\.npz \(or MNIST/raw/{absent}\) missing; looked in {place}, {tmp_path / 'cache'}\. "
    with pytest.raises(ArtifactError, match=rf"^{where}.*HTTP Error 404.*again.*FEDNOISE_DATA"):
        sources.read({"source": "mnist"}, [place], tmp_path / "cache")


def test_a_damaged_download_leaves_nothing_and_the_next_try_succeeds(tmp_path, mnist, web):
    cache, name = tmp_path / "cache", "/t10k-images-idx3-ubyte.gz"
    good = web.files[name]
    for damaged in (good[:-10], good[:40] + bytes([good[40] ^ 1]) + good[41:]):
        web.files[name] = damaged
        with pytest.raises(ArtifactError, match=r"(?s)downloading t10k-images-idx3-ubyte.gz.*corrupted"):
            sources.read({"source": "mnist"}, [], cache)
        assert [path.name for path in cache.iterdir()] == [".mnist.lock"]
    web.files[name] = good
    same(sources.read({"source": "mnist"}, [], cache), mnist)


def test_files_that_are_not_what_they_are_called_are_refused(tmp_path, mnist):
    np.savez(tmp_path / "mnist.npz", **{**mnist, "y_train": mnist["y_train"][::-1]})
    with pytest.raises(ArtifactError, match="mnist: y_train is not the published one"):
        sources.read({"source": "mnist"}, [tmp_path], tmp_path / "cache")
    np.savez(tmp_path / "mnist.npz", **{**mnist, "x_train": mnist["x_train"][:, 1:]})
    with pytest.raises(ArtifactError, match=r"mnist: x_train has shape \(30, 5, 5\), not \(30, 6, 5\)"):
        sources.read({"source": "mnist"}, [tmp_path], tmp_path / "cache")
    data = (tmp_path / "mnist.npz").read_bytes()
    (tmp_path / "mnist.npz").write_bytes(data[:-100])
    with pytest.raises(ArtifactError, match=r"mnist\.npz: damaged, or not plain arrays"):
        sources.read({"source": "mnist"}, [tmp_path], tmp_path / "cache")
    np.savez(tmp_path / "mnist.npz", **{**mnist, "y_test": np.array([object()] * 20)})
    with pytest.raises(ArtifactError, match=r"mnist\.npz: damaged, or not plain arrays .*y_test holds Python objects"):
        sources.read({"source": "mnist"}, [tmp_path], tmp_path / "cache")


@pytest.fixture
def cifar10(monkeypatch, web):
    """A toy CIFAR-10 behind torchvision's address: rows of 3,072 bytes, channel planes one after the other."""
    content = toy((32, 32, 3))
    pretend(monkeypatch, "cifar10", content)
    files = {}
    parts = [(f"data_batch_{i + 1}", "train", slice(6 * i, 6 * i + 6)) for i in range(5)]
    for name, part, rows in [*parts, ("test_batch", "test", slice(None))]:
        flat = content[f"x_{part}"][rows].transpose(0, 3, 1, 2).reshape(-1, 3072)
        files[name] = pickle.dumps({"data": flat, "labels": content[f"y_{part}"][rows].tolist()}, protocol=2)
    files["batches.meta"] = pickle.dumps({"label_names": list(official.CIFAR10.published.names)}, protocol=2)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    kind = datasets.CIFAR10
    sums = [[name, md5(body)] for name, body in files.items()]
    monkeypatch.setattr(kind, "train_list", sums[:5])
    monkeypatch.setattr(kind, "test_list", sums[5:6])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": sums[6][1]})
    monkeypatch.setattr(kind, "url", web.url + kind.filename)
    monkeypatch.setattr(kind, "tgz_md5", md5(buffer.getvalue()))
    web.files[f"/{kind.filename}"] = buffer.getvalue()
    return content


def test_cifar10_is_unpacked_and_a_pickle_with_another_md5_is_never_opened(tmp_path, cifar10):
    same(sources.read({"source": "cifar10"}, [], tmp_path), cifar10)
    proof = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return Path.touch, (proof,)

    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(ArtifactError, match=r"cifar10 cannot be read .*corrupted"):
        sources.read({"source": "cifar10"}, [], tmp_path)
    assert not proof.exists()
    pickle.loads(path.read_bytes())
    assert proof.exists()  # it would have been


def test_cifar100_has_superclasses_and_can_be_read_by_them(tmp_path, monkeypatch):
    content = toy((32, 32, 3))
    content["y_train"][:3] = [0, 54, 99]  # apple, orchid, worm
    pretend(monkeypatch, "cifar100", content)
    np.savez(tmp_path / "cifar100.npz", **content)
    arrays = sources.read({"source": "cifar100"}, [tmp_path])
    same(arrays, content)
    superclass = [facts.CIFAR100_COARSE_NAMES[i] for i in arrays.coarse[[0, 54, 99]]]
    assert superclass == ["fruit_and_vegetables", "flowers", "non-insect_invertebrates"]
    coarse = sources.read({"source": "cifar100", "labels": "coarse"}, [tmp_path])
    assert coarse.classes == sources.read_facts({"source": "cifar100", "labels": "coarse"})[1] == 20
    np.testing.assert_array_equal(coarse.y_train, arrays.coarse[arrays.y_train])
    assert coarse.names[coarse.y_train[0]] == "fruit_and_vegetables"


def test_svhn_counts_its_zero_as_zero(tmp_path, monkeypatch, web):
    from scipy.io import savemat

    content = toy((32, 32, 3))
    split = {}
    for part in ("train", "test"):
        buffer = io.BytesIO()
        labels = np.where(content[f"y_{part}"] == 0, 10, content[f"y_{part}"])[:, None]
        savemat(buffer, {"X": content[f"x_{part}"].transpose(1, 2, 3, 0), "y": labels})
        name = f"{part}_32x32.mat"
        web.files[f"/{name}"] = buffer.getvalue()
        split[part] = [web.url + name, name, md5(buffer.getvalue())]
    monkeypatch.setattr(datasets.SVHN, "split_list", split)
    pretend(monkeypatch, "svhn", content)
    arrays = sources.read({"source": "svhn"}, [], tmp_path)
    same(arrays, content)
    assert set(arrays.y_train) == set(range(10))
    (tmp_path / "test_32x32.mat").write_bytes(b"damaged")
    with pytest.raises(ArtifactError, match=r"svhn cannot be read .*corrupted"):
        sources.read({"source": "svhn"}, [], tmp_path)


def test_public_images_of_another_data_set_are_stratified_and_unlabelled(tmp_path, mnist):
    np.savez(tmp_path / "mnist.npz", **mnist)
    digits = sources.read({"source": "digits", "subset": {"train": 50}, "public": {"dataset": "digits", "n": 90}})
    assert (digits.n, len(digits.x_public)) == (50, 90)
    assert sources.read_facts({"source": "mnist", "public": {"dataset": "digits", "n": 9}})[0] == 30
    with pytest.raises(ArtifactError, match=r"x_public has images \(6, 5\), x_train \(8, 8\)"):
        sources.read({"source": "digits", "public": {"dataset": "mnist", "n": 10}}, [tmp_path])
    with pytest.raises(SpecError, match="public: n: 31, but mnist has 30"):
        sources.read({"source": "digits", "public": {"dataset": "mnist", "n": 31}}, [tmp_path])


# CIFAR-N


@pytest.fixture
def cifar10n(tmp_path, monkeypatch, cifar10, web):
    """A toy CIFAR-10 in tmp_path/cifar10.npz, without human labels, and their file behind the authors' address."""
    import torch

    np.savez(tmp_path / "cifar10.npz", **cifar10)
    labels = pretend_human(monkeypatch, "cifar10", cifar10)

    def publish(clean: np.ndarray, **extra) -> bytes:
        buffer = io.BytesIO()
        wide = {key: value.astype(np.int64) for key, value in {"clean_label": clean, **labels}.items()}
        torch.save({**wide, **extra}, buffer)
        body = buffer.getvalue()
        name = human.FILES["cifar10"][0]
        monkeypatch.setitem(human.FILES, "cifar10", (name, hashlib.sha256(body).hexdigest()))
        web.files["/" + name] = body
        return body

    monkeypatch.setattr(human, "URLS", (web.url,))
    publish(cifar10["y_train"])
    return labels, publish


SPEC = {"source": "cifar10", "human": True}


def check_human(arrays, labels) -> None:
    assert set(arrays.given) == set(labels)
    for key, value in labels.items():
        np.testing.assert_array_equal(arrays.given[key], value)
        assert arrays.given[key].dtype == np.int64


def test_human_labels_come_from_the_authors_file_or_the_npz_and_only_if_asked_for(tmp_path, cifar10, cifar10n, web):
    labels, _ = cifar10n
    assert sources.read({"source": "cifar10"}, [tmp_path], tmp_path / "cache").given == {}
    assert web.asked == []
    check_human(sources.read(SPEC, [tmp_path], tmp_path / "cache"), labels)
    assert web.asked == ["/CIFAR-10_human.pt"]
    web.files.clear()
    check_human(sources.read(SPEC, [tmp_path], tmp_path / "cache"), labels)  # from the cache
    packed = tmp_path / "packed"
    packed.mkdir()
    np.savez(packed / "cifar10.npz", **cifar10, **labels)
    check_human(sources.read(SPEC, [packed], tmp_path / "empty"), labels)
    subset = sources.read({**SPEC, "subset": {"train": 10}}, [packed], tmp_path / "empty")
    np.testing.assert_array_equal(subset.given["aggre_label"], subset.y_train)
    with pytest.raises(ArtifactError, match=r"cifar10 human labels: CIFAR-10_human\.pt .*missing; .*FEDNOISE_DATA"):
        sources.read(SPEC, [tmp_path], tmp_path / "empty")


def test_human_labels_of_images_in_another_order_are_refused(tmp_path, cifar10, cifar10n):
    _, publish = cifar10n
    clean = cifar10["y_train"].copy()
    clean[[3, 4]] = clean[[4, 3]]
    publish(clean)
    with pytest.raises(ArtifactError, match=r"differ from the data set's at 2 of 30 positions: .*in another order"):
        sources.read(SPEC, [tmp_path], tmp_path / "cache")


def test_a_human_file_of_other_content_is_not_opened_and_none_runs_code(tmp_path, cifar10, cifar10n):
    _, publish = cifar10n
    body = publish(cifar10["y_train"])
    (tmp_path / "CIFAR-10_human.pt").write_bytes(body[:-1] + b"x")
    with pytest.raises(ArtifactError, match=r"CIFAR-10_human\.pt: not the authors' file"):
        sources.read(SPEC, [tmp_path], tmp_path / "cache")
    proof = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return Path.touch, (proof,)

    (tmp_path / "CIFAR-10_human.pt").unlink()
    publish(cifar10["y_train"], more=Evil())
    with pytest.raises(ArtifactError, match=r"CIFAR-10_human\.pt: cannot be read \(UnpicklingError"):
        sources.read(SPEC, [tmp_path], tmp_path / "cache")
    assert not proof.exists()


def test_a_human_file_written_before_numpy_2_is_read(tmp_path, cifar10, cifar10n, monkeypatch):
    """The authors' files are of 2021: their pickle names numpy.core, which numpy 2 calls numpy._core."""
    labels, publish = cifar10n
    old = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(publish(cifar10["y_train"]))) as new, zipfile.ZipFile(old, "w") as archive:
        for name in new.namelist():
            archive.writestr(name, new.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert b"numpy.core.multiarray" in old.getvalue()
    (tmp_path / "CIFAR-10_human.pt").write_bytes(old.getvalue())
    published = ("CIFAR-10_human.pt", hashlib.sha256(old.getvalue()).hexdigest())
    monkeypatch.setitem(human.FILES, "cifar10", published)
    check_human(sources.read(SPEC, [tmp_path], tmp_path / "cache"), labels)


def test_fn_dataset_looks_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDNOISE_DATA", str(tmp_path / "here"))
    with pytest.raises(ArtifactError, match=f"looked in {tmp_path / 'here'}"):
        sources.read("mnist", cache=tmp_path)
    with pytest.raises(ArtifactError, match=f"looked in {tmp_path}[,.;]"):
        sources.read("mnist", (), cache=tmp_path)  # a given list of folders replaces the environment's
