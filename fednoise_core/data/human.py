"""CIFAR-10N and CIFAR-100N: labels that people gave to CIFAR's training images (Wei et al. 2022).

Their licence is CC BY-NC 4.0, so the library does not contain them. They are read from the user's `cifar10.npz` /
`cifar100.npz`, from the authors' files `CIFAR-10_human.pt` / `CIFAR-100_human.pt`, or from the authors' repository.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.arrays import content_sha256
from fednoise_core.data.fetch import fetch, is_intact
from fednoise_core.data.locate import list_folders, not_found
from fednoise_core.io import ArtifactError, read_npz

URLS = tuple(  # a fixed commit, then the branch; the content is checked by its SHA-256 in both cases
    f"https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/{version}/data/" for version in ("49df7d8", "main")
)
FILES = {  # source -> (the authors' file, its SHA-256)
    "cifar10": ("CIFAR-10_human.pt", "873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310"),
    "cifar100": ("CIFAR-100_human.pt", "bd2d80409754d420292d622e15e25248ba21e37d27429efac49c8da723f44394"),
}
KEYS = {  # source -> key in the authors' file -> SHA-256 of the 50,000 labels as uint8
    "cifar10": {
        "aggre_label": "2bd5e02e39c9c79772cf4c794f7b74630ac1aaeeac4b807a63c11e9a375f8404",
        "random_label1": "8d01b5a5af048e84bf6e964c86e1133e95d5b22c07763e23705b714ad0f32d8b",
        "random_label2": "7ea04c887750912f49669282a75e78df380077766b361fb6cb5200999ad6dcda",
        "random_label3": "cdbfad7e15bfc8fc83bc7c6e30b692e2aa1186660d82738b7543a6012d6ca46f",
        "worse_label": "11a306ed336e3bc81aaac36322ddf12de379d0df1883aa43e10ba562a98f6b2a",
    },
    "cifar100": {
        "noisy_label": "54050bc3f9441adc78f204c68915d49a7f86bfa72b8fba04751b961d5be4aa62",
        "noisy_coarse_label": "72a87757e6d246ae0dd4cafd3f06505150fe09364d244e4cce2745153b5fad68",
    },
}


def read_human_labels(
    source: str, y_train: np.ndarray, places: Sequence[Path], cache: Path
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Human labels of CIFAR's training images (CIFAR-N, Wei et al. 2022).

    Args:
        source: "cifar10" or "cifar100".
        y_train: the clean labels in torchvision's order. The human labels must have the same order.
        places: folders to search.
        cache: folder for downloads.

    Returns:
        Key -> labels int64 [n], and key -> SHA-256.

    Raises:
        ArtifactError: The labels cannot be downloaded, are damaged, or have another order of images.
    """
    name, sha256 = FILES[source]
    for folder in list_folders(places, cache):
        npz = folder / f"{source}.npz"
        label_sets = read_npz(npz, KEYS[source].__contains__) if npz.is_file() else {}
        if len(label_sets) < len(KEYS[source]) and (folder / name).is_file():
            label_sets = _from_pt(folder / name, sha256, y_train)
        if len(label_sets) >= len(KEYS[source]):
            return _check_labels(source, label_sets)
    from filelock import FileLock

    cache.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(cache / f".{name}.lock"):
            path = fetch([url + name for url in URLS], cache / name, sha256)
    except ArtifactError as error:
        file_names = [f"{name} (or {source}.npz with them)"]
        raise not_found(f"{source} human labels", file_names, places, cache, str(error)) from error
    return _check_labels(source, _from_pt(path, sha256, y_train))


def _from_pt(path: Path, sha256: str, y_train: np.ndarray) -> dict[str, np.ndarray]:
    """Read the authors' file with torch's restricted unpickler. Check that its clean labels equal `y_train`."""
    if not is_intact(path, sha256):
        raise ArtifactError(f"{path}: not the authors' file: its SHA-256 is not {sha256}")
    import torch

    reconstruct = np.zeros(0).__reduce__()[0]
    harmless: list[Any] = [np.ndarray, np.dtype, np.dtypes.Int64DType, reconstruct]
    harmless.append((reconstruct, "numpy.core.multiarray._reconstruct"))  # its name before numpy 2
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(harmless):
            warnings.simplefilter("ignore")  # numpy on the age of the file
            loaded = torch.load(path, weights_only=True, map_location="cpu")
        arrays = {key: np.asarray(value) for key, value in loaded.items()}
        clean = arrays.pop("clean_label")
    except Exception as error:  # torch, pickle and zipfile each raise their own kinds
        raise ArtifactError(f"{path}: cannot be read ({type(error).__name__}: {error})") from error
    differs = int((clean != y_train).sum()) if clean.shape == y_train.shape else len(y_train)
    if differs:
        raise ArtifactError(
            f"{path}: its clean labels differ from the data set's at {differs} of {len(y_train)} positions: "
            "the images are in another order (torchvision's is needed)"
        )
    return arrays


def _check_labels(source: str, label_sets: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    checked, hashes = {}, {}
    for key, expected in KEYS[source].items():
        narrow = label_sets[key].astype(np.uint8)
        hashes[key] = content_sha256(narrow)
        if hashes[key] != expected:
            raise ArtifactError(f"{source} human labels: {key} is not the published one (SHA-256 {hashes[key]})")
        checked[key] = narrow.astype(np.int64)
    return checked, hashes
