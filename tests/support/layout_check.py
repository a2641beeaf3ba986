"""Rules of a readable figure: no text over another, none outside, none smaller than 7 pt."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 0.5  # pixels at 100 dpi: letters have some air inside their boxes


def shown_texts(figure: Figure) -> list[tuple[Text, Bbox]]:
    """Every text that is drawn, with its box in pixels; ticks outside of the axes are not drawn."""
    assert isinstance(figure.canvas, FigureCanvasAgg)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    texts: list[Text] = [*figure.texts]
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        texts += legend.get_texts() if legend else []
    for axes in figure.axes:
        texts += axes.texts
        texts += [axes.title, axes._left_title, axes._right_title]
        if axes.axison:
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                ticks = axis.get_major_ticks()
                reach = 1e-9 * (high - low)
                inside = [tick for tick in ticks if low - reach <= tick.get_loc() <= high + reach]
                texts += [tick.label1 for tick in inside if tick.label1.get_visible()]
                texts.append(axis.label)
    return [
        (text, text.get_window_extent(renderer)) for text in texts if text.get_visible() and text.get_text().strip()
    ]


def problems(figure: Figure) -> list[str]:
    """Overlapping, cut off or tiny texts, in words; empty if the figure is readable."""
    complaints, texts = [], shown_texts(figure)
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in texts:
        name = repr(text.get_text())
        if text.get_fontsize() < 7:
            complaints.append(f"{name} is {text.get_fontsize()} pt")
        if box.x0 < -SLACK or box.y0 < -SLACK or box.x1 > width + SLACK or box.y1 > height + SLACK:
            complaints.append(f"{name} leaves the figure: {box.extents.round(1)} of {width:.0f} × {height:.0f}")
    edges = np.array([box.extents for _, box in texts]).reshape(-1, 2, 2)  # lower left and upper right corner
    shared = np.minimum(edges[:, None, 1], edges[:, 1]) - np.maximum(edges[:, None, 0], edges[:, 0])
    for first, second in np.argwhere(np.triu((shared > SLACK).all(2), 1)):
        wide, high = shared[first, second]
        names = f"{texts[first][0].get_text()!r} and {texts[second][0].get_text()!r}"
        complaints.append(f"{names} overlap by {wide:.1f} × {high:.1f} px")
    return complaints
