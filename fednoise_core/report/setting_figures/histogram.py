"""Who holds how many samples of which class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fednoise_core.io import SpecError
from fednoise_core.report.artifacts import SettingArtifacts
from fednoise_core.report.setting_figures.common import NUMBERS, class_axis, drawn, varying, whose
from fednoise_core.report.style import FAINT, FILL, HEAT, QUIET, WRONG, Drawn, canvas, inches, wrap

__all__ = ["CLIENTS", "histogram"]

DOTS = 4000  # cells; beyond that dots are dust, and a heat map shows more


DUST = 1.2  # square points: a smaller dot could not be seen


CLIENTS = 150  # shown at most: wider than that, no client can be told from the next


def histogram(found: Sequence[SettingArtifacts], spec: Mapping[str, Any]) -> Drawn:
    """Samples per client and class, by clean and given labels, as dots sized by count (FedDPCont, figures 3 and 4); the
    dot inside is the share of them that is mislabelled.
    """
    show = spec.get("show") or ["clean", "given"]
    panels = [(one, kind, y) for one in found for kind in show if (y := _labels_of(one, kind)) is not None]
    if not panels:
        raise SpecError("show: the clean labels are unknown, and nothing else is asked for")
    counts = [one.split.histogram(y, one.classes) for one, _, y in panels]
    classes, most = max(c.shape[1] for c in counts), max(c.shape[0] for c in counts)
    width = inches(spec)
    columns = 2 if most <= 30 and len(show) == 2 and len(panels) == 2 * len(found) and width > 5 else 1
    many = len(panels) > 4  # small multiples
    columns = (2 if most > 30 or width < 5 else 3) if many and (width > 5 or most <= 30) else columns
    tall = (0.135 if many else 0.19) * classes + 0.6 if classes <= 2 * NUMBERS else 2.0 if many else 3.2
    rows = -(-len(panels) // columns)
    figure = canvas(width, rows * tall + 0.55)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    dots = min(most, CLIENTS) * classes <= DOTS
    held = np.concatenate([c[c > 0] for c in counts])
    cells = (width / columns - 0.75) * 72 / min(most, CLIENTS), (tall - 0.55) * 72 / classes  # width, height in points
    room = min(*cells, 16)
    scale = 0.95 * room / np.sqrt(np.quantile(held, 0.9))  # one scale for all panels; few dots outgrow their cell
    flipped = [_wrong_of(one, y) for one, _, y in panels]
    for axis, (one, kind, _), count, wrong in zip(grid.flat, panels, counts, flipped, strict=False):
        who = _shown(one)
        if dots:
            client, label = np.nonzero(count[who])
            colour = FILL if kind == "given" else QUIET
            sizes = np.maximum(scale**2 * count[who][client, label], DUST)
            axis.scatter(client, label, s=sizes, linewidths=0, color=colour, alpha=0.75)
            bad = wrong[who][client, label]
            axis.scatter(client[bad > 0], label[bad > 0], s=scale**2 * bad[bad > 0], linewidths=0, color=WRONG)
            radius = scale * np.sqrt(count[who].max()) / 2  # in points; the greatest dots shall not be cut
            x, y = (max(0.7, 0.1 + radius / cell) for cell in cells)
            axis.set_xlim(-x, len(who) - 1 + x)
            axis.set_ylim(one.classes - 1 + y, -y)  # class 0 at the top, as in a transition matrix
        else:
            image = count[who].T
            axis.imshow(image, aspect="auto", origin="upper", cmap=HEAT, norm=PowerNorm(0.5, 0), interpolation="none")
            axis.grid(False)
        words = " · ".join(varying(found, one))
        title = f"{words}{': ' if words else ''}{kind} labels" if len(show) > 1 or not words else words
        axis.set_title(wrap(title, width / columns - 0.4))
        class_axis(axis.yaxis, one)
        axis.xaxis.set_major_locator(MaxNLocator(10 if columns == 1 else 6 if columns == 2 else 4, integer=True))
        axis.xaxis.set_major_formatter(lambda value, _, who=who: str(who[int(value)]) if 0 <= value < len(who) else "")
    for spare in list(grid.flat)[len(panels) :]:
        spare.remove()
    for axis in list(grid.flat)[max(len(panels) - columns, 0) : len(panels)]:
        axis.set_xlabel("client")
    for axis in grid[:, 0]:
        axis.set_ylabel("class")
    meaning = f"darker is more (up to {held.max()}), on a square-root scale"
    if dots:
        meaning = "the area of a dot is the count"
        meaning += ", that of the dot inside how many of them are mislabelled" if any(w.any() for w in flipped) else ""
        marks = sorted(
            {max(1, round(float(np.quantile(held, share)))) for share in (0.1, 0.5, 0.9)} | {int(held.max())}
        )
        style: dict[str, Any] = {"marker": "o", "linestyle": "", "color": FAINT, "markeredgewidth": 0}
        handles = [Line2D([], [], markersize=max(scale * np.sqrt(mark), np.sqrt(DUST)), **style) for mark in marks]
        texts = [f"{mark} samples" if mark > 1 else "1 sample" for mark in marks]
        if any(w.any() for w in flipped):
            handles.append(Line2D([], [], markersize=4.5, **{**style, "color": WRONG}))
            texts.append("mislabelled")
        columns_of = len(texts) if width > 5 else 3
        figure.legend(handles, texts, loc="outside lower center", ncols=columns_of, handletextpad=0.3)
    cut = " Evenly chosen clients are shown." if any(len(_shown(one)) < one.split.clients for one in found) else ""
    total = " or ".join(str(n) for n in sorted({len(one.split.index) for one in found}))
    kinds = f", {show[0]} labels" if len(show) == 1 else ""
    caption = f"Samples of every client by class{kinds} (n = {total}); {meaning}.{cut} {whose(found)}"
    missing = np.mean([(one.split.histogram(one.labels.noisy, one.classes) == 0).mean() for one in found])
    alt = (
        f"Grid of clients and classes. On average a client lacks {100 * missing:.0f} % of the classes, by given labels."
    )
    told = [
        f"{' · '.join(varying(found, one) or one.words)}: {100 * one.labels.rate:.0f} %"
        for one in found
        if one.labels.clean is not None
    ]
    alt += f" Mislabelled: {'; '.join(told)}." if told else ""
    frames = [
        _long(one, kind, count, wrong) for (one, kind, _), count, wrong in zip(panels, counts, flipped, strict=True)
    ]
    return drawn(figure, frames, spec, "Who holds which class", caption, alt)


def _labels_of(one: SettingArtifacts, kind: str) -> np.ndarray | None:
    return one.labels.noisy if kind == "given" else one.labels.clean


def _wrong_of(one: SettingArtifacts, y: np.ndarray) -> np.ndarray:
    """How many of each client's samples of each class are mislabelled, [clients, K]; 0 where nobody knows."""
    wrong = one.labels.wrong
    if wrong is None:
        return np.zeros((one.split.clients, one.classes), int)
    found = np.zeros((one.split.clients, one.classes), int)
    client = np.repeat(np.arange(one.split.clients), one.split.sizes)
    bad = wrong[one.split.index]
    np.add.at(found, (client[bad], y[one.split.index][bad]), 1)
    return found


def _long(one: SettingArtifacts, kind: str, counts: np.ndarray, wrong: np.ndarray) -> pd.DataFrame:
    client, label = np.nonzero(counts)
    return pd.DataFrame(
        {
            "dataset": one.dataset,
            "noise": one.noise,
            "partition": one.partition,
            "labels": kind,
            "client": client,
            "class": label,
            "samples": counts[client, label],
            "mislabelled": wrong[client, label],
        }
    )


def _shown(one: SettingArtifacts) -> np.ndarray:
    return np.unique(np.linspace(0, one.split.clients - 1, min(one.split.clients, CLIENTS)).round().astype(int))
