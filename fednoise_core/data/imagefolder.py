"""The user's own images: `train/<class>/…` and `test/<class>/…`, with an optional CSV of given labels and owners."""

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import MISSING, Field

from fednoise_core.data.array_checks import owners_of
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.from_user import from_user
from fednoise_core.data.images import BESIDE, SUFFIXES, ImageFiles
from fednoise_core.data.label_table import Line, read_table, rows_of
from fednoise_core.data.locate import user_path
from fednoise_core.data.settings import Dataset, OwnTest
from fednoise_core.data.splits import held_out, holdout_share
from fednoise_core.io import ArtifactError, SpecError, sha256_file
from fednoise_core.settings.declare import NoBool

Side = Annotated[int, Field(ge=1, le=4096)]


class ImageFolder(Dataset):
    """The user's images in train/<class>/… and test/<class>/…, with an optional CSV (file, label, client).

    The CSV has labels and owners. Every class needs a training image. Links must point to images below path. With
    clean_known: false and labels in the CSV, the folders in train/ may have any names. There may also be no train/. The
    CSV then has files below path.
    """

    example: ClassVar = {"path": "photos", "size": 32, "given": "labels.csv"}

    path: Annotated[
        str,
        Field(min_length=1, description="Folder with train/ and test/, in the working folder or below data_root."),
    ]
    size: Annotated[
        Side | Annotated[list[Side], Field(min_length=2, max_length=2)] | MISSING,
        Field(
            description="Side, or [height, width], that images are scaled and cropped to; default: the size of the "
            "files, which must be the same for all."
        ),
    ] = MISSING
    channels: Annotated[Literal[1, 3], NoBool, Field(description="1: grey, 3: colour.")] = 3
    given: Annotated[
        str | MISSING,
        Field(
            min_length=1,
            description="CSV below path or the working folder with the columns file (below train/), label (a class "
            "name), client (the owner, any text) and drop (yes leaves the image out). drop is optional, and so is one "
            "of label and client.",
        ),
    ] = MISSING
    clean_known: Annotated[
        bool,
        Field(
            description="false: the labels are as collected and may be wrong. They are those of the CSV if it has "
            "labels, else those of the folders."
        ),
    ] = True
    damaged: Annotated[
        Literal["stop", "skip"],
        Field(description="Images that cannot be decoded are named in one error, or left out and counted."),
    ] = "stop"
    test: OwnTest = MISSING

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Read the images below `path`. Folders are classes, in alphabetical order over train/ and test/.

        With `clean_known: false` and labels in the CSV, these are the labels as collected, and the folders of train/
        have no meaning. Folders are searched recursively. Names that begin with a dot are ignored. A link is followed
        if it points to an image below `path`.

        Raises:
            ArtifactError: a file or folder is missing or wrong (a link that leads out of `path`, an image beside the
                class folders, a class without a training image, a line of the CSV). The message names it.
        """
        listed, left_out = _list_training(spec, places), list[str]()
        if spec.get("damaged") == "skip":
            left_out = ImageFiles(_training_folder(listed.root), listed.paths, size=(1, 1)).list_damaged()
            listed = listed.without(set(left_out))
        train = ImageFiles(_training_folder(listed.root), listed.paths, int(spec.get("channels", 3)), shape_of(spec))
        test = None
        if "test" not in spec:
            images = _find_images(listed.root / "test", listed.names)
            if spec.get("damaged") == "skip":
                damaged = ImageFiles(listed.root / "test", [name for name, _ in images], size=(1, 1)).list_damaged()
                images = [(name, folder) for name, folder in images if name not in damaged]
                left_out += [f"test/{name}" for name in damaged]
            tests = ImageFiles(listed.root / "test", [name for name, _ in images], train.channels, train.size)
            tests.fixed, train.beside = train.fixed, (tests,)
            test = tests, _class_numbers((folder for _, folder in images), listed.names)
        return from_user(
            spec,
            str(_training_folder(listed.root)),
            train,  # decoded when it is saved
            listed.labels,
            test,
            classes=len(listed.names),
            owners=(None, ()) if listed.owners is None else owners_of(np.array(listed.owners), "client"),
            names=tuple(listed.names),
            given=listed.given,
            clean_known=bool(spec.get("clean_known", True)),
            origin=np.array(listed.paths),
            first=listed.first,
            left_out=tuple(left_out),
            source_sha256={} if listed.table is None else {listed.table.name: sha256_file(listed.table)},
        )

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """Read the facts from the names of files and folders, the CSV, and, without `size`, the first image."""
        listed = _list_training(spec, places)
        if spec.get("damaged") == "skip":
            listed = listed.without(
                set(ImageFiles(_training_folder(listed.root), listed.paths, size=(1, 1)).list_damaged())
            )
        share = holdout_share(spec)
        test_count = 0 if share is None else held_out(listed.labels, share)
        size = shape_of(spec) or ImageFiles(_training_folder(listed.root), listed.paths[:1]).size
        return len(listed.paths) - test_count, len(listed.names), size

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """Read the columns of the CSV."""
        columns = rows_of(_table_path(spec, _find_root(spec, places), places))[0] if "given" in spec else []
        collected = "label" in columns or not spec.get("clean_known", True)
        return {name for name, there in (("given", collected), ("client_ids", "client" in columns)) if not there}

    @classmethod
    def list_files(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
        """List the folders and the CSV, if there is one."""
        root = _find_root(spec, places)
        folders = [_training_folder(root), *([root / "test"] if "test" not in spec else [])]
        return [*folders, _table_path(spec, root, places)] if "given" in spec else folders


class _Listed(NamedTuple):
    """Contents of the folder that are known without opening an image.

    names: class names. paths: training images below train/. labels: int64 [n] from the folders, or from the CSV if it
    has the only labels. given: other labels of the CSV. owners: texts. first: labels before corrections, int64 [n].
    """

    root: Path
    names: list[str]
    paths: list[str]
    labels: np.ndarray
    given: dict[str, np.ndarray]
    owners: list[str] | None
    first: np.ndarray | None
    table: Path | None

    def without(self, left_out: Set[str]) -> "_Listed":
        """Remove the images with these paths."""
        rows = np.array([row for row, path in enumerate(self.paths) if path not in left_out], np.int64)
        if not len(rows):
            raise ArtifactError(f"{_training_folder(self.root)}: every image is damaged")
        return self._replace(
            paths=[self.paths[row] for row in rows],
            labels=self.labels[rows],
            given={key: labels[rows] for key, labels in self.given.items()},
            owners=None if self.owners is None else [self.owners[row] for row in rows],
            first=None if self.first is None else self.first[rows],
        )


def _list_training(spec: Mapping[str, Any], places: Sequence[Path]) -> _Listed:
    root = _find_root(spec, places)
    tests = ("test",) if "test" not in spec else ()
    table = _table_path(spec, root, places) if "given" in spec else None
    columns = rows_of(table)[0] if table else []
    labels_in_table = "label" in columns  # else the folders alone say the classes
    if labels_in_table and not spec.get("clean_known", True):
        names = None
        folder_of = dict(_find_images(_training_folder(root), [""]))
    else:
        if table and not (root / "train").is_dir():
            raise ArtifactError(f"{table}: it has no column label, but {', '.join(columns)}")
        names = _folder_names(root, ("train", *tests))
        folder_of = dict(_find_images(root / "train", names))
    lines = [Line(path, None, None) for path in folder_of]
    if table:
        lines = read_table(table, list(folder_of), names, _training_folder(root))
    paths, labels = [line.file for line in lines], [line.label or "" for line in lines]
    firsts, first = [line.first for line in lines if line.first is not None], None  # of every line, or of none
    if names is None:
        classes = sorted({*labels, *firsts, *_list_folders(root, tests)})
        names = _require_several(classes, f"{table}: the column label names")
        folder_of, labels_in_table = dict(zip(paths, labels, strict=True)), False
        first = _class_numbers(firsts, names) if firsts else None
    owners = [line.owner or "" for line in lines] if "client" in columns else None
    label_sets = {"given": _class_numbers(labels, names)} if labels_in_table else {}
    numbers = _class_numbers((folder_of[path] for path in paths), names)
    return _Listed(root, names, paths, numbers, label_sets, owners, first, table)


def _class_numbers(labels: Iterable[str], names: Sequence[str]) -> np.ndarray:
    """Class numbers int64 [n] of class names."""
    number = {name: label for label, name in enumerate(names)}
    return np.array([number[label] for label in labels], np.int64)


def classes_of_files(root: Path) -> dict[str, str]:
    """The class folder of every training image.

    Args:
        root: the folder with train/.

    Returns:
        File below train/ -> its class folder, sorted by file.

    Raises:
        ArtifactError: there is no train/.
    """
    if not (root / "train").is_dir():
        raise ArtifactError(
            f"{root}: it has no folder train/. Name the CSV of its labels, such as data/NAME-labels.csv"
        )
    return dict(_find_images(root / "train", _folder_names(root, ("train",))))


def shape_of(spec: Mapping[str, Any]) -> tuple[int, int] | None:
    """(H, W) of the setting `size` (a number or a pair), or None: as the files are."""
    side = spec.get("size")
    return (side, side) if isinstance(side, int) else side and (side[0], side[1])


def _find_root(spec: Mapping[str, Any], places: Sequence[Path]) -> Path:
    """Find the folder. It must have train/ and exactly one test set, which is test/ or the setting `test`.

    Without train/, there may be a CSV of labels with files below the folder itself.
    """
    root = user_path(spec, places)
    if not (root / "train").is_dir() and ("given" not in spec or spec.get("clean_known", True)):
        raise SpecError(f"dataset imagefolder: path: {root} has no folder train/")
    there = (root / "test").is_dir()
    if "test" in spec and there:
        raise SpecError(f"dataset imagefolder: test: {root} has a folder test/; remove the setting `test` to use that")
    if "test" not in spec and not there:
        cure = "add trusted images there, or let a share of the given data stand in: test: {holdout: 0.2}"
        raise SpecError(f"dataset imagefolder: path: {root} has no folder test/; {cure}")
    return root


def _training_folder(root: Path) -> Path:
    return root / "train" if (root / "train").is_dir() else root


def _table_path(spec: Mapping[str, Any], root: Path, places: Sequence[Path]) -> Path:
    """Find the CSV of the setting `given` below `path`, or else below the working folder or one of `places`."""
    name = PurePath(str(spec["given"]))
    if name.is_absolute() or ".." in name.parts:
        raise SpecError(f"dataset imagefolder: given: {name} leads out of {root}; name a file below it")
    return user_path({**spec, "given": root / name} if (root / name).exists() else spec, places, "given")


def _list_folders(root: Path, parts: Sequence[str]) -> set[str]:
    folder_names = set()
    for part in parts:
        for entry in sorted((root / part).iterdir()):
            if entry.name.startswith("."):
                continue
            if _is_image(entry):
                raise ArtifactError(f"{entry}: an image beside the class folders; its folder says its class")
            if entry.is_dir():
                folder_names.add(entry.name)
    return folder_names


def _folder_names(root: Path, parts: Sequence[str]) -> list[str]:
    return _require_several(sorted(_list_folders(root, parts)), f"{root}: class folders in {' and '.join(parts)}:")


def _require_several(names: list[str], place: str) -> list[str]:
    if len(names) < 2:
        raise ArtifactError(f"{place} {', '.join(names) or 'none'}; at least 2 classes are needed")
    return names


def _is_image(path: Path) -> bool:
    """Return True if the name of a file is that of an image.

    Raises ArtifactError if the file may be an image of an unsupported format.
    """
    suffix, hidden = path.suffix.lower(), path.name.startswith(".")
    if not hidden and suffix not in BESIDE | SUFFIXES and path.exists() and not path.is_dir():
        ending = suffix or "a file without a suffix"
        raise ArtifactError(f"{path}: {ending} is not read; save it as .png or .jpg, or move it elsewhere")
    return suffix in SUFFIXES and not hidden


def _find_images(folder: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """(path below `folder`, class folder) of every image, sorted by path."""
    inside = folder.parent.resolve()
    images = []
    for name in names:
        for path in (folder / name, *(folder / name).rglob("*")):
            if path.is_symlink():
                # a folder that is a link is not searched; a file that lies elsewhere can change unnoticed
                leads_out = not path.resolve().is_relative_to(inside)
                if path.is_dir() or (_is_image(path) and leads_out):
                    cure = "copy what it leads to, or set path to the folder that holds all"
                    raise ArtifactError(f"{path}: a link to {path.resolve()}, read below {inside}; {cure}")
            if not _is_image(path):
                continue
            if not path.is_file():
                raise ArtifactError(f"{path}: expected an image, got no regular file; move it elsewhere")
            below = path.relative_to(folder).as_posix()
            try:
                below.encode()
            except UnicodeEncodeError as error:
                raise ArtifactError(f"{folder}: {below!r}: its name is not UTF-8; rename it") from error
            images.append((below, name))
    if not images:
        raise ArtifactError(f"{folder}: no images in its class folders")
    return sorted(images)
