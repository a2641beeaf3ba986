"""Training images with their given and true labels."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from pydantic import Field

from fednoise_core.report.figures.kind import Drawn, FigureKind, FigureSettings
from fednoise_core.report.figures.settings.common import finish_figure, settings_caption, shorten_text
from fednoise_core.report.figures.style import WRONG, make_canvas, width_inches
from fednoise_core.report.runs.settings import SettingArtifacts
from fednoise_core.rng import stream


class SamplesSettings(FigureSettings):
    """Training images of the first setting named, with the given label and, where that is wrong, the clean one.

    Half of them are wrong, if there are so many.
    """

    count: Annotated[int, Field(ge=1, le=64, description="Images shown; up to half of them mislabelled.")] = 16


def _draw_samples(shown: Sequence[SettingArtifacts], settings: SamplesSettings) -> Drawn:
    one, width = shown[0], width_inches(settings)
    index, across = _pick_samples(one, settings.count), 8 if width > 5 else 4
    rows = -(-len(index) // across)
    figure = make_canvas(width, rows * 1.25)
    axes = figure.subplots(rows, across, squeeze=False).flat
    for axis in axes:
        axis.set_axis_off()
    table = _sample_frame(one, index)
    for axis, row in zip(figure.axes, table.to_dict("records"), strict=False):
        _draw_sample(axis, one, row)
    return finish_figure(figure, [table], settings, "Samples", _describe_samples(one, index))


def _sample_frame(one: SettingArtifacts, index: np.ndarray) -> pd.DataFrame:
    """A row an image. Columns of what is unknown are empty."""
    labels, unknown = one.labels, [""] * len(index)
    clean = unknown if labels.clean is None else labels.clean[index].astype(int)
    wrong = unknown if labels.wrong is None else labels.wrong[index].astype(int)
    return pd.DataFrame(
        {"sample": index.astype(int), "given": labels.noisy[index].astype(int), "clean": clean, "wrong": wrong}
    )


def _draw_sample(axis: Axes, one: SettingArtifacts, row: Mapping[Any, Any]) -> None:
    """Draw an image with the given label above, and below, where it is wrong, what it is."""
    axis.imshow(one.image(row["sample"]), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    given = _label_words("given", shorten_text(one.names[row["given"]]))
    axis.text(0.5, 1.06, given, ha="center", va="bottom", transform=axis.transAxes)
    if row["wrong"] == 1:
        foreign = one.labels.replaced is not None and row["sample"] in one.labels.replaced
        truth = "other data" if foreign else shorten_text(one.names[row["clean"] or 0])
        axis.text(0.5, -0.06, _label_words("is", truth), ha="center", va="top", transform=axis.transAxes, color=WRONG)


def _describe_samples(one: SettingArtifacts, index: np.ndarray) -> dict[str, str]:
    wrong, foreign = one.labels.wrong, one.labels.replaced
    replaced = np.isin(index, [] if foreign is None else foreign)
    text = f"Training images (n = {len(index)}). Above: the given label"
    text += "; the clean labels are unknown." if wrong is None else "."
    if wrong is not None and not replaced[wrong[index]].all():
        text += " Below a wrong label: the right one."
    if replaced.any():
        public = one.labels.spec.get("noise", {}).get("donor", "public") == "public"
        donor = "one of the public images of this data set" if public else "one of another data set"
        text += f" “Other data”: the image was replaced by {donor}, so that its label is wrong."
    alt = f"{len(index)} training images of {one.dataset} with their given labels"
    alt += "." if wrong is None else f", {int(wrong[index].sum())} of them wrong, with the right label below."
    return {"caption": f"{text} {settings_caption([one])}", "alt": alt}


def _label_words(word: str, name: str) -> str:
    """A label with the word before it, where an image's width has room for both."""
    return f"{word} {name}" if len(name) <= 5 else name


def _pick_samples(one: SettingArtifacts, count: int) -> np.ndarray:
    """Sample numbers to show, the wrong ones first; the choice is drawn once per seed."""
    order = stream(one.seed, "report", "samples").permutation(np.unique(one.split.index))
    wrong = one.labels.wrong
    if wrong is None:
        return order[:count]
    bad = order[wrong[order]]
    half = min(len(bad), count // 2)
    return np.concatenate([bad[:half], order[~wrong[order]][: count - half]])


def _has_images(one: SettingArtifacts) -> bool:
    return one.arrays.x_train.dtype.kind != "f"


KIND = FigureKind(
    settings=SamplesSettings,
    draw=_draw_samples,
    example={"noises": ["sym40"], "partitions": ["iid"], "count": 16},
    applies=_has_images,
)
