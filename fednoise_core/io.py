"""Atomic writes of files, canonical JSON, digests, CSV cells, and npz artifacts that contain their spec."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


class SpecError(ValueError):
    """A setting is wrong; the message names the file (or the place) and the key."""


class ArtifactError(RuntimeError):
    """A file is missing, damaged or not what it claims to be; the message names it."""


HEADER = 10_012  # bytes of the header of an npz member: numpy's bound, and the prefix of 12 bytes
NAMED = 20  # largest number of problems that one error lists
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")  # of Linux
ADDRESS = "address.txt"  # in a folder of the workflow's store: the address that its files were made for
ADDRESS_PATTERN = re.compile(r"(?:.*/)?((?:store|data/arrays)/.+/[0-9a-f]{16})")


def raise_all(kind: type[Exception], problems: Iterable[str]) -> None:
    """Raise one error for several problems, so that the user sees them all at once.

    Args:
        kind: Class of the error.
        problems: Texts of the problems. The first ones are listed, one per line, and the others are counted.

    Raises:
        Exception: An error of this kind, if there is a problem.
    """
    if lines := list(problems):
        more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
        raise kind("\n".join([*lines[:NAMED], *more]))


class Problems(list[str]):
    """Problems of settings that are reported in one error."""

    @contextlib.contextmanager
    def catch(self) -> Iterator[None]:
        """Catch SpecError in the block and store its message."""
        try:
            yield
        except SpecError as error:
            self.extend(line for line in str(error).splitlines() if line not in self)

    def raise_all(self) -> None:
        """Raise one SpecError for all problems, if there are any."""
        raise_all(SpecError, self)


@contextlib.contextmanager
def open_atomic(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that replaces `path` only if the block succeeds.

    A reader sees either the old file or the whole new one, also after a kill or on a full disk.

    Args:
        path: File to write. Missing folders are made.
        mode: "w" (UTF-8) or "wb".

    Yields:
        The temporary file, which lies beside `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with open(handle, mode, encoding=None if "b" in mode else "utf-8", newline=None if "b" in mode else "") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp makes it private
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)  # a full disk's error names no file
        raise


def remove_unfinished(folder: str | os.PathLike[str]) -> None:
    """Remove the temporary files of killed writers. Call it only where nobody else writes.

    Args:
        folder: Folder to clean, without its subfolders.
    """
    for left in Path(folder).glob(".*.tmp"):
        left.unlink(missing_ok=True)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and without spaces, so that equal settings give equal text.

    Args:
        value: Anything that JSON can hold.

    Returns:
        ASCII text.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def json_digest(*values: Any) -> str:
    """Short digest of settings.

    Args:
        *values: Anything that JSON can hold.

    Returns:
        First 16 hex digits of the SHA-256 of their canonical JSON.
    """
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()[:16]


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes.

    Args:
        path: File to read.

    Returns:
        64 hex digits.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write readable JSON with sorted keys, whole or not at all.

    Args:
        path: File to write.
        value: Anything that JSON can hold.

    Raises:
        ValueError: A number is NaN or infinite.
    """
    with open_atomic(path) as file:
        json.dump(value, file, sort_keys=True, indent=2, allow_nan=False)
        file.write("\n")


FORMULA = (*"=+-@＝＋－＠\t\r\n", "'")  # first letters that may make a spreadsheet run a cell, and the mark itself


def safe_cell(text: str) -> str:
    """Mark a CSV cell that a spreadsheet might run as a formula.

    Args:
        text: Content of the cell.

    Returns:
        The text, with a ' in front if it begins like a formula.
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def plain_cell(text: str) -> str:
    """Undo `safe_cell`.

    Args:
        text: Cell of a CSV file.

    Returns:
        The content that `safe_cell` was given.
    """
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text


def read_texts(path: str | Path) -> pd.DataFrame:
    """Read all cells of a CSV as text, "" where one is empty.

    Args:
        path: Of any CSV with a head.

    Raises:
        ArtifactError: If it is missing or damaged.
    """
    import pandas as pd  # the import takes most of a second

    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
    except Exception as error:  # pandas has a family of parser errors
        raise ArtifactError(f"{path}: damaged CSV ({type(error).__name__}: {error})") from error
    return frame.map(plain_cell)


def save_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], spec: Mapping[str, Any]) -> None:
    """Write arrays and their spec to one npz file.

    Args:
        path: File to write.
        arrays: Arrays by name.
        spec: Settings. They become an array `spec` of canonical JSON.

    Raises:
        ValueError: An array holds Python objects, or a setting is NaN or infinite.
    """
    write_npz(path, {**dict(sorted(arrays.items())), "spec": np.array(canonical_json(dict(spec)))})


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to one npz file. The same input gives the same bytes.

    Args:
        path: File to write.
        arrays: Arrays by name, in the order of the file.

    Raises:
        ValueError: An array holds Python objects, which only a pickle could store.
    """
    with open_atomic(path, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            array = np.asanyarray(array)
            if array.dtype.hasobject:
                raise ValueError(f"{path}: array {name!r} holds Python objects")
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))  # a fixed date: bytes repeat
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(
                    member, np.ascontiguousarray(array) if array.ndim else array, allow_pickle=False
                )


def find_address(folder: str | os.PathLike[str]) -> str:
    """Find the address of a folder of the workflow's store, such as store/labels/digits/symmetric-0.4/seed0/<digest>.

    Args:
        folder: The folder, whatever lies above the store.

    Returns:
        The address, or "" for a folder of another place.
    """
    match = ADDRESS_PATTERN.fullmatch(Path(folder).as_posix())
    return match[1] if match else ""


def find_other_address(folder: str | os.PathLike[str]) -> str | None:
    """Find the address that a folder of the store was made for, if it is not its own.

    Args:
        folder: The folder. One of another place, or without the file that names an address, is not judged.
    """
    address = find_address(folder)
    try:
        made_for = Path(folder, ADDRESS).read_text(encoding="utf-8").strip() if address else ""
    except (OSError, UnicodeDecodeError):  # missing or damaged, which the audit finds
        return None
    return made_for if made_for != address else None


def check_address(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder of the store that holds what was made for another address.

    Raises:
        ArtifactError: It was made for another address (`find_other_address`). The message names both.
    """
    if (made_for := find_other_address(folder)) is not None:
        cure = "`fednoise audit --remove` moves it away, and `snakemake` makes it again"
        raise ArtifactError(f"{folder}: holds what was made for {made_for}. {cure}")


def load_npz(
    path: str | os.PathLike[str], kind: str, selects: Callable[[str], bool] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays and spec of an npz artifact.

    Args:
        path: File to read.
        kind: "arrays", "labels" or "partition". It must equal the spec's `artifact`.
        selects: Tells by its name whether an array is read. By default all are.

    Returns:
        Arrays by name, and the spec.

    Raises:
        ArtifactError: The file is missing, truncated, damaged, of another kind, or of another address of the store.
    """
    check_address(Path(path).parent)
    problem = f"damaged {kind} artifact"
    arrays = read_npz(path, lambda name: name == "spec" or selects is None or selects(name), problem)
    try:
        spec = json.loads(str(arrays.pop("spec")))
        artifact = spec.get("artifact")
    except (KeyError, ValueError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"{path}: {problem} ({type(error).__name__}: {error})") from error
    if artifact != kind:
        raise ArtifactError(f"{path}: expected {'an' if kind == 'arrays' else 'a'} {kind} artifact, found {artifact!r}")
    return arrays, spec


def read_headers(
    path: str | os.PathLike[str], problem: str = "damaged, or not plain arrays"
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Read the shapes and dtypes of the arrays in an npz file. No array is unpacked.

    Args:
        path: File to read.
        problem: What the error says of a file that cannot be read.

    Returns:
        Shape and dtype by name.

    Raises:
        ArtifactError: The file is missing or no npz file, an array in it is damaged, or an array occurs twice.
    """
    if not os.path.isfile(path):  # reading a pipe would wait
        raise ArtifactError(f"{path}: no such file, or not a regular one")
    if not zipfile.is_zipfile(path):
        raise ArtifactError(f"{path}: {problem} (an npz file is a zip archive of arrays, as np.savez writes it)")
    headers: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as opened:
                    file = BytesIO(opened.read(HEADER))  # its length may be a lie
                    major = np.lib.format.read_magic(file)[0]
                    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
                    shape, _, dtype = read(file)
                if member.removesuffix(".npy") in headers:
                    raise ValueError("an array occurs twice")
                headers[member.removesuffix(".npy")] = shape, dtype
    except Exception as error:  # zipfile, zlib and numpy each raise their own kinds
        raise ArtifactError(f"{path}: {problem} ({type(error).__name__}: {error})") from error
    return headers


def _find_memory() -> float:
    """Bytes that the machine has free, or the limit of a container or cluster job if it is less; infinite: unknown."""
    free = [math.inf]
    with contextlib.suppress(OSError, ValueError):
        free += [int(kb) << 10 for kb in re.findall(r"MemAvailable:\s*(\d+) kB", (PROC / "meminfo").read_text())]
        for line in (PROC / "self/cgroup").read_text().splitlines():
            _, kind, group = line.split(":", 2)
            root, name = (CGROUPS, "memory.max") if not kind else (CGROUPS / kind, "memory.limit_in_bytes")
            for above in (Path(group[1:]), *Path(group[1:]).parents):  # a container sees its own group as the root
                with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                    free.append(int((root / above / name).read_text()))
    return min(free)


def _check_memory(path: str | os.PathLike[str], headers: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    """Raise ArtifactError if arrays with these headers do not fit into the memory that is free (where it is known)."""
    sizes = {name: math.prod(shape) * max(dtype.itemsize, 1) for name, (shape, dtype) in headers.items()}
    if sum(sizes.values()) > (free := _find_memory()):
        largest = max(sizes, key=lambda name: sizes[name])
        needed = f"{sum(sizes.values()) / 1e9:.1f} GB, {sizes[largest] / 1e9:.1f} for {largest} {headers[largest][0]}"
        raise ArtifactError(f"{path}: its arrays need {needed}. This process may take {free / 1e9:.1f} GB")


def read_npz(
    path: str | os.PathLike[str], selects: Callable[[str], bool], problem: str = "damaged, or not plain arrays"
) -> dict[str, np.ndarray]:
    """Read arrays of an npz file without pickles.

    Args:
        path: File to read.
        selects: Tells by its name whether an array is read.
        problem: What the error says of a file that cannot be read.

    Returns:
        Arrays by name.

    Raises:
        ArtifactError: The file is missing, cannot be read, holds Python objects, or does not fit into memory.
    """
    headers = {name: header for name, header in read_headers(path, problem).items() if selects(name)}
    if objects := [name for name, (_, dtype) in headers.items() if dtype.hasobject]:
        raise ArtifactError(f"{path}: {problem} ({objects[0]} holds Python objects; numbers or texts are needed)")
    _check_memory(path, headers)
    try:
        # opened here: np.load leaves a damaged file open
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in headers}
    except Exception as error:  # zipfile, zlib and numpy each raise their own kinds
        raise ArtifactError(f"{path}: {problem} ({type(error).__name__}: {error})") from error
