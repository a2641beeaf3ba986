"""The result of fn.find_label_errors: a DataFrame that can write a page for review and correct the labels."""

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fednoise_core.data.array_checks import ArraysError, as_images
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.images import ImageFiles
from fednoise_core.data.splits import all_classes_occur
from fednoise_core.io import ArtifactError, SpecError, open_atomic
from fednoise_core.label_errors.csv_rows import Site, read_rows
from fednoise_core.label_errors.decisions import Decision, Suspect, describe_harm
from fednoise_core.label_errors.page import labels_page
from fednoise_core.label_errors.scope import FAR
from fednoise_core.label_errors.thumbnails import LARGE
from fednoise_core.noise.labels import Labels


class LabelErrors(pd.DataFrame):
    """Estimates for all labels, the most suspect first. Results of pandas (`query`, `head`) are plain DataFrames.

    Attributes:
        data: The data set.
        classes: The user's values for the classes 0, 1 …, [K].
    """

    _metadata: ClassVar = ["data", "classes"]
    data: Arrays
    classes: np.ndarray

    def page(self, path: str | os.PathLike[str], *, images: Any = None, title: str = "Suspect labels") -> None:
        """Write a page to keep, relabel or drop labels. The page saves the decisions as decisions.csv.

        Args:
            path: The HTML file. It contains the pictures.
            images: Pictures of feature vectors: integers 0..255 [n, H, W] or [n, H, W, C], or n paths of image files.
            title: Title of the page.

        Raises:
            ArraysError: `images` has no valid pictures, or not one for each sample.
            ArtifactError: A file is missing or damaged.
        """
        data = self.data
        pictures: Any = None if images is None else np.asarray(images)
        if pictures is not None and len(pictures) != data.n:
            raise ArraysError(f"images: expected one for each of {data.n} samples, got {len(pictures)}")
        if pictures is not None and pictures.ndim == 1:
            pictures = ImageFiles(Path(), [*map(str, pictures)], size=(LARGE, LARGE))
        elif pictures is not None:
            pictures = as_images("images", pictures)
        rows = enumerate(self.to_dict("records"))
        suspects = [Suspect.model_validate({**row, "where": f"row {place}"}) for place, row in rows]
        sites = [Site(where=f"site {site['client']}", **site) for site in self.attrs["sites"]]
        labels = Labels.of(data.y_train, data.y_train, data.classes, False)
        given = {"pictures": pictures, "findings": self.attrs["findings"]}
        text = labels_page(data, labels, suspects, sites, title, summary={"accuracy": {}}, **given)
        with open_atomic(path) as file:
            file.write(text)

    def corrected(
        self, decisions: str | os.PathLike[str] | None = None, *, drop: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Correct the labels.

        Args:
            decisions: The decisions.csv of the page. By default, every verdict `wrong` is accepted without review.
                Samples that are blank or out of scope have no right label. They keep their label, unless they are
                dropped.
            drop: Whether samples are dropped instead of relabelled.

        Returns:
            The remaining rows of `x`, int64 [m] in ascending order, and their labels [m] in the user's values. Samples
            of sites that were left out keep their label.

        Raises:
            ArtifactError: A decision was made for another label than the data have.
            SpecError: There are no decisions, and relabelling is not expected to help.
            ArraysError: No sample of a class would be left.
        """
        given = self.data.y_train
        corrected, stays = given.copy(), np.ones(len(given), bool)
        if decisions is None:
            wrong = self[self["verdict"] == "wrong"]
            classless = (wrong.get("out_of_scope", 0.0) > FAR) | wrong["blank"]
            stays[wrong["sample"].to_numpy(int)] = not drop
            relabelled = wrong[~classless]
            harm = describe_harm(relabelled["p_wrong"].tolist(), relabelled["p_proposed"].tolist())
            if harm and not drop:
                raise SpecError(f"corrected: {harm}, or pass drop=True")
            corrected[relabelled["sample"].to_numpy(int)] = relabelled["proposed"].to_numpy(int)
        else:
            rows = {self.data.source(row): row for row in range(len(given))}
            for decision in read_rows(Path(decisions), Decision):
                row = rows.get(decision.source, -1)
                if row < 0 or given[row] != decision.given or decision.label >= self.data.classes:
                    raise ArtifactError(
                        f"{decision.where}: sample {decision.source!r} with label {decision.given} is not here"
                    )
                if decision.decision == "relabel":
                    corrected[row] = decision.label
                stays[row] = decision.decision == "keep" or (decision.decision == "relabel" and not drop)
        if len(np.unique(given)) == self.data.classes:
            all_classes_occur([corrected[stays]], self.data.classes, list(self.data.names), "y, corrected")
        return np.flatnonzero(stays), self.classes[corrected[stays]]
