"""Training images with their given and true labels."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from pydantic import Field

from fednoise_core.rng import stream
from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.settings.common import finish_figure, settings_caption, shorten_text
from workflow_scripts.report.figures.style import SIZE, WRONG, make_canvas, width_inches, wrap_to_width
from workflow_scripts.report.runs.settings import SettingArtifacts


class SamplesSettings(FigureSettings):
    """Training images of the first setting named, with the given label and, if it is wrong, the clean label.

    Half of the images have wrong labels, if there are enough of them.
    """

    count: Annotated[int, Field(ge=1, le=64, description="Images shown; up to half of them mislabelled.")] = 16


def _draw_samples(panels: Sequence[SettingArtifacts], settings: SamplesSettings) -> Drawn:
    setting, width = panels[0], width_inches(settings)
    index, across = _pick_samples(setting, settings.count), 8 if width > 5 else 4
    table = _sample_frame(setting, index)
    groups = {_group_head(setting, wrong): rows for wrong, rows in table.groupby("wrong", sort=False)}
    starts = np.cumsum([0, *(-(-len(rows) // across) for rows in groups.values())])  # each group begins a row
    figure = make_canvas(width, starts[-1] * 1.25 + 0.16 * len(groups) + 0.3)
    figure.suptitle(wrap_to_width(setting.words[1], width), x=0.06 / width, ha="left")
    axes = figure.subplots(starts[-1], across, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for (head, rows), start in zip(groups.items(), starts, strict=False):
        for axis in axes[start]:
            axis.set_title("\n ", loc="center")  # reserves space for the head, which is wider than an image
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
        axes[start, 0].annotate(head, (0, 1), (0, 6 + 1.3 * SIZE), in_layout=False, **place)
        for axis, row in zip(axes[start:].flat, rows.to_dict("records"), strict=False):
            _draw_sample(axis, setting, row)
    caption = f"Training images, n = {len(index)}, with the given label above each. {settings_caption([setting])}"
    alt = f"{len(index)} training images of {setting.setting.dataset}. "
    alt += ". ".join(f"{head}: {len(rows)}" for head, rows in groups.items())
    return finish_figure(figure, [table], settings, "Samples", {"caption": caption, "alt": f"{alt}."})


def _group_head(setting: SettingArtifacts, wrong: Any) -> str:
    """Title of a group of images, from their cell in the column `wrong` of the frame."""
    if wrong == "":
        return "Given label, the true class is unknown"
    if not wrong:
        return "Given label right"
    if setting.labels.replaced is None:
        return "Given label wrong, true class in orange"
    from_public = setting.labels.spec.get("noise", {}).get("donor", "public") == "public"
    return f"Given label wrong, image replaced by a {'public' if from_public else 'foreign'} one"


def _sample_frame(setting: SettingArtifacts, index: np.ndarray) -> pd.DataFrame:
    """Make one row per image. Unknown values are empty."""
    labels, unknown = setting.labels, [""] * len(index)
    clean = unknown if labels.clean is None else labels.clean[index].astype(int)
    wrong = unknown if labels.wrong is None else labels.wrong[index].astype(int)
    return pd.DataFrame(
        {"sample": index.astype(int), "given": labels.noisy[index].astype(int), "clean": clean, "wrong": wrong}
    )


def _draw_sample(axis: Axes, setting: SettingArtifacts, row: Mapping[Any, Any]) -> None:
    """Draw an image with the given label above it, and, if this is wrong, the clean label below it."""
    axis.imshow(setting.image(row["sample"]), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    label_text = _label_words("given", shorten_text(setting.names[row["given"]]))
    axis.text(0.5, 1.06, label_text, ha="center", va="bottom", transform=axis.transAxes)
    if row["wrong"] == 1:
        foreign = setting.labels.replaced is not None and row["sample"] in setting.labels.replaced
        truth = "replaced" if foreign else _label_words("is", shorten_text(setting.names[row["clean"] or 0]))
        axis.text(0.5, -0.06, truth, ha="center", va="top", transform=axis.transAxes, color=WRONG)


def _label_words(word: str, name: str) -> str:
    """Put a word before a label if both fit into an image's width."""
    return f"{word} {name}" if len(name) <= 5 else name


def _pick_samples(setting: SettingArtifacts, count: int) -> np.ndarray:
    """Sample numbers to show, the wrong ones first; the choice is drawn once per seed."""
    order = stream(setting.seed, "report", "samples").permutation(np.unique(setting.split.index))
    wrong = setting.labels.wrong
    if wrong is None:
        return order[:count]
    bad = order[wrong[order]]
    half = min(len(bad), count // 2)
    return np.concatenate([bad[:half], order[~wrong[order]][: count - half]])


def _has_images(setting: SettingArtifacts) -> bool:
    return setting.arrays.x_train.dtype.kind != "f"


KIND = FigureKind(
    settings=SamplesSettings,
    draw=_draw_samples,
    example={"noises": ["sym40"], "partitions": ["iid"], "count": 16},
    applies=_has_images,
)
