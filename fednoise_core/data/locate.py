"""Search for the files of a data set: in the user's folders first, in the download cache last."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError


def list_folders(places: Sequence[Path], cache: Path) -> Iterator[Path]:
    """Folders in the order in which they are searched, each once."""
    yield from dict.fromkeys([*places, cache])


def list_missing(folder: Path, files: Sequence[str]) -> list[str]:
    """Those of `files` (names below `folder`) that are not there."""
    return [name for name in files if not (folder / name).is_file()]


def not_found(source: str, files: Sequence[str], places: Sequence[Path], cache: Path, problem: str) -> ArtifactError:
    """Make the error that says which files are missing, where they were looked for, and what to do.

    Args:
        source: the data set.
        files: their names. Alternatives are one text ("A or B").
        places: folders that were searched.
        cache: folder for downloads.
        problem: why the download failed.
    """
    looked = ", ".join(str(folder) for folder in list_folders(places, cache))
    return ArtifactError(
        f"{source}: {', '.join(files)} missing; looked in {looked}. The download failed: {problem}. Two ways to get "
        f"it: with a network, run the same command again (it downloads into {cache}); or put the files into a folder "
        "and name that folder as data_root in config/config.yaml or in the environment variable FEDNOISE_DATA"
    )


def user_path(spec: Mapping[str, Any], places: Sequence[Path], key: str = "path", default: str | None = None) -> Path:
    """Find the file or folder that a setting names.

    Args:
        spec: the data set's settings.
        places: folders to search after the working folder.
        key: the setting.
        default: its default.

    Raises:
        SpecError: The file or folder does not exist. The message names the key.
    """
    name = spec.get(key, default)
    if name is None:
        raise SpecError(f"dataset {spec.get('source')}: {key} is missing")
    tried = list(dict.fromkeys([Path(name), *(place / name for place in places)]))
    for path in tried:
        if path.exists():
            return path
    looked = ", ".join(str(path) for path in tried)
    raise SpecError(f"dataset {spec.get('source')}: {key}: {name} does not exist (looked for {looked})")
