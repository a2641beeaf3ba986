"""Style of every figure, and the files that it is saved to.

A colour, a marker and a line style for each method, text of 7.5 pt or more at print size, and files whose bytes repeat.
"""

import contextlib
import io
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from fednoise_core.index import FAMILIES
from fednoise_core.io import ArtifactError, open_atomic
from fednoise_core.settings.variants import base_method
from workflow_scripts.report.figures.kind import Drawn, FigureSettings
from workflow_scripts.report.runs.run import ListedRun
from workflow_scripts.report.text.escape import wrap_text

# Inches: the text of a page, and a column of two. Nothing is scaled in print, so 8 pt here are 8 pt there.
WIDTHS = {"page": 7.0, "column": 3.4}
SIZE = 8  # points: the letters; numbers at ticks have half a point less
DPI = 200
HEAT = "Blues"  # one hue, so that brightness alone carries the number
DIFFERENCE = "PRGn"  # green: more than 0; for red-green blind readers, too
INK, FAINT = "#222222", "#8a8a8a"
# Round dots, which no method's dashes are.
CEILING: dict[str, Any] = {
    "color": "#6b6b6b",
    "linestyle": (0, (0.05, 1.7)),
    "linewidth": 1.7,
    "dash_capstyle": "round",
}

# What a method does about noise → its colours: three, each on white and on a dark ground. The hues are those of Okabe
# and Ito (2008) and Tol (2021) with a contrast of 3:1 or more. Orange is what is wrong, and nothing else.
_SHADES = (  # in the order of FAMILIES
    (("#0072B2", "#6bb8f0"), ("#00406E", "#3d93d6"), ("#008BA3", "#3cc4d8")),
    (("#009E73", "#3fcf9f"), ("#00573F", "#a4ecd0"), ("#579A1C", "#9fdc5a")),
    (("#332288", "#a9a0ff"), ("#8478DA", "#7f73e6"), ("#5B3DC4", "#d3ceff")),
    (("#882255", "#f0608c"), ("#B8324F", "#ff9aa8"), ("#D6456B", "#d94a6a")),
    (("#8A6D00", "#d9b44a"), ("#4F3F00", "#a98a2c"), ("#AD8A00", "#f2dc9a")),
    (("#CC79A7", "#f0a8d0"), ("#A34C93", "#d07fc4"), ("#D24D9B", "#ff7fc8")),
)
SHADES = len(_SHADES[0])
FAMILY_COLOURS = dict(zip(FAMILIES, _SHADES, strict=True))
PLAIN = ("#000000", "#f2f2f2")  # FedAvg, which the others are compared with
COLOURS, DARK = zip(PLAIN, *(shade for family in FAMILY_COLOURS.values() for shade in family), strict=True)
FILL, WRONG, QUIET = "#0072B2", "#D55E00", "#7A7A7A"  # what there is; what is wrong of it; what stands back
DOT: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 4.5}
HOLLOW: dict[str, Any] = {**DOT, "color": QUIET, "markerfacecolor": "white"}  # what is not compared
BASELINE: dict[str, Any] = {"color": QUIET, "linestyle": "-", "linewidth": 1.0, "zorder": 1}
# 9 and 7 share no divisor, so 63 methods differ without colour, too: in a grey print.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (6, 1.6)),
    (0, (3, 1.2, 1, 1.2)),
    (0, (2, 1)),
    (0, (8, 1.2, 1, 1.2, 1, 1.2)),
    (0, (3, 2.8)),
    (0, (5, 1.2, 2, 1.2)),
)
MARKED, APART = 0.2, 3  # from a marker to the next, in parts of a panel; lines whose markers stand apart

STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same letters
    "font.size": SIZE,
    "axes.titlesize": SIZE,
    "axes.labelsize": SIZE,
    "legend.fontsize": SIZE,
    "figure.titlesize": SIZE + 1,
    "xtick.labelsize": SIZE - 0.5,
    "ytick.labelsize": SIZE - 0.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.0,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.titlepad": 5,
    "text.parse_math": False,  # a $ in a label is a $
    "svg.fonttype": "path",
    "svg.hashsalt": "fednoise_core",
    "pdf.fonttype": 42,  # letters stay letters: publishers refuse Type 3 fonts
    "axes.unicode_minus": True,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "figure.constrained_layout.hspace": 0.05,
    "figure.constrained_layout.wspace": 0.04,
}


class Look:
    """The colour, marker and line style of one method, the same in every figure of a study.

    Args:
        colour: Place of its colour in COLOURS and DARK.
        place: Which of the study's markers and dashes it has.
    """

    def __init__(self, colour: int, place: int) -> None:
        self.place, self.colour = colour, COLOURS[colour]
        self.family = (colour - 1) // SHADES
        self.marker = MARKERS[place % len(MARKERS)]
        self.dash = DASHES[place % len(DASHES)]

    def line_style(self, hollow: bool = False, **keywords: Any) -> dict[str, Any]:
        """Keyword arguments of `Axes.plot`, of which `keywords` ones replace some. What is not compared is hollow."""
        face, edge, width = ("white", self.colour, 1.0) if hollow else (self.colour, "white", 0.5)
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dash,
            "markerfacecolor": face,
            "markeredgecolor": edge,
            "markeredgewidth": width,
            **keywords,
        }


def assign_looks(listed: Iterable[ListedRun]) -> dict[str, Look]:
    """Give each method of a study a look.

    Its name and family decide the colour, in whatever study it is. Marker and dashes go by its place in the study's own
    order, FedAvg first. Up to seven methods of one colour differ by their dashes.

    Args:
        listed: The runs of the study.
    """
    methods = {run.method: (run.name or base_method(run.method), str(run.family)) for run in listed}
    order = sorted(methods, key=lambda method: methods[method][0] != "fedavg")
    looks, taken = {}, set()
    free = list(range(len(order) * len(DASHES)))
    for method in order:
        colour = _find_colour(*methods[method])
        place = next((number for number in free if (colour, number % len(DASHES)) not in taken), free[0])
        free.remove(place)
        taken.add((colour, place % len(DASHES)))
        looks[method] = Look(colour, place)
    return looks


def style_dense_lines(
    looks: Mapping[str, Look], methods: Iterable[str], hollow: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Style lines of many points: those of one family, whose colours are alike, have a marker now and then.

    Args:
        looks: The looks of the study's methods.
        methods: Those that are drawn.
        hollow: Those that are not compared. They have hollow markers.

    Returns:
        Method → keyword arguments of `Axes.plot`.
    """
    methods = list(methods)
    families, styles = Counter(looks[method].family for method in methods), {}
    for place, method in enumerate(methods):
        apart = method in hollow
        marker = looks[method].marker if apart or families[looks[method].family] > 1 else ""
        interval = (MARKED * (place % APART + 0.5) / APART, MARKED)  # the first and the next
        styles[method] = looks[method].line_style(hollow=apart, marker=marker, markevery=interval)
    return styles


def _find_colour(name: str, family: str) -> int:
    """The place in COLOURS of a method. The name decides the shade, so no figure depends on the list of methods."""
    if name == "fedavg":
        return 0
    shade = zlib.crc32(name.encode()) % SHADES
    return 1 + SHADES * (list(FAMILY_COLOURS).index(family) if family in FAMILY_COLOURS else 0) + shade


@contextlib.contextmanager
def use_house_style() -> Iterator[None]:
    """Draw everything inside in the house style, whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def make_canvas(width: float, height: float) -> Figure:
    """Make an empty figure, laid out so that nothing overlaps.

    It is not registered with pyplot, which would keep it in memory.

    Args:
        width: Inches.
        height: Inches.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def width_inches(settings: FigureSettings) -> float:
    """The width that a figure's settings ask for."""
    return WIDTHS[settings.width]


def choose_ink(colour: Any) -> str:
    """Choose black or white letters on a coloured ground, whichever has more contrast.

    Args:
        colour: Of the ground, in any form that matplotlib knows.
    """
    light = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return "#000000" if np.dot((0.2126, 0.7152, 0.0722), light) > 0.179 else "#ffffff"


def draw_heat_map(
    axis: Axes,
    matrix: np.ndarray,
    norm: Normalize,
    format_cell: Callable[[float], str] | None = None,
    colours: str = HEAT,
) -> AxesImage:
    """Draw a matrix as colours.

    Args:
        axis: Where to.
        matrix: Numbers [rows, columns]. NaN is an empty cell.
        norm: From numbers to colours.
        format_cell: Text of a cell from its number.
        colours: Name of a colour map.

    Returns:
        The image, for a colour bar.
    """
    image = axis.imshow(matrix, cmap=colours, norm=norm, interpolation="none", aspect="auto")
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    for (i, j), value in np.ndenumerate(matrix):
        if format_cell and np.isfinite(value):
            ink = choose_ink(image.cmap(image.norm(value)))
            axis.text(j, i, format_cell(value), ha="center", va="center", fontsize=7, color=ink)
    return image


def add_colour_bar(axes: Sequence[Axes], image: AxesImage, label: str) -> Colorbar:
    """Add a colour bar below all panels, and make the figure taller for it.

    Args:
        axes: All panels of the figure.
        image: Of `draw_heat_map`.
        label: What the colours mean.
    """
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    figure.set_figheight(figure.get_figheight() + 0.5)  # inches
    return figure.colorbar(image, ax=axes, location="bottom", shrink=0.6, aspect=40, label=label)


def make_panels(
    count: int, settings: FigureSettings, height: float = 2.3, columns: int | None = None, **share: Any
) -> tuple[Figure, list[Axes]]:
    """Make a figure of small multiples, as wide as its settings ask for.

    Args:
        count: Number of panels.
        settings: The figure's settings.
        height: Inches of each panel.
        columns: Panels side by side. The default in a column's width is one, or two of more than two panels. In a
            page's width it is two up to four panels and three of more.
        share: `sharex` and `sharey` of `Figure.subplots`.

    Returns:
        The figure and its panels.
    """
    width = width_inches(settings)
    columns = columns or ((1 if count <= 2 else 2) if width < 5 else 2 if count in (2, 4) else 3)
    columns = min(columns, count)
    rows = -(-count // columns)
    if columns == 1 and width > 5:
        width = 4.8  # one panel of a page's width is a slit
    figure = make_canvas(width, rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, **share)
    flat = list(grid.flat)
    for spare in flat[count:]:
        spare.remove()
    if share.get("sharex"):  # a panel above an empty place is the lowest of its column: it keeps its numbers
        for axes in flat[count - columns : count]:
            axes.tick_params(labelbottom=True)
    return figure, flat[:count]


def add_legend_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Add one legend for all panels under them, and make the figure taller by as much.

    Args:
        figure: The figure.
        handles: Lines and markers with their labels. Of none there is no legend.
    """
    if not handles:
        return
    width, height = figure.get_size_inches()
    size, handle_long, gap = (SIZE, 2.6, 1.6) if width > 4 else (SIZE - 1, 2.2, 1.2)  # two side by side in a column
    for handle in handles:
        handle.set_label(wrap_to_width(str(handle.get_label()), width - (handle_long + 2) * size / 72, size))
    entry = max(len(str(handle.get_label())) for handle in handles) * 0.6 * size + (handle_long + 0.8 + gap) * size
    columns = int(np.clip((width * 72 + gap * size) // entry, 1, min(len(handles), 5)))
    rows = -(-len(handles) // columns)
    columns = -(-len(handles) // rows)  # as even as possible
    lines = rows + sum(str(handle.get_label()).count("\n") for handle in handles)  # of long ones there is one in a row
    apart = max(0.35, max(handle.get_markersize() for handle in handles) / size - 0.9)  # between rows, times a letter
    figure.set_size_inches(width, height + 0.0178 * (1 + apart) * size * lines + 0.1)
    look: dict[str, Any] = {"fontsize": size, "handlelength": handle_long, "columnspacing": gap, "labelspacing": apart}
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **look)


def wrap_to_width(text: str, inches: float, size: float = SIZE) -> str:
    """Break a text so that it fits a width.

    Args:
        text: The text.
        inches: The width.
        size: Of the letters in points.
    """
    letters = max(12, int(inches * 72 / (size * 0.56)))
    return wrap_text(text, letters, break_long_words=False)


def set_titles(axes: Sequence[Axes], heads: Sequence[str], inches: float | None = None) -> None:
    """Set panel titles in as many lines as the longest needs, broken at the dots between their parts first.

    Args:
        axes: The panels.
        heads: Title of each.
        inches: The width that each has, if not the panel's share of the figure.
    """
    inches = inches or _panel_inches(axes[0])
    fits = all("\n" not in wrap_to_width(head, inches) for head in heads)
    texts = heads if fits else ["\n".join(wrap_to_width(part, inches) for part in head.split(" · ")) for head in heads]
    lines = max(text.count("\n") for text in texts)
    for axis, text in zip(axes, texts, strict=True):
        axis.set_title(text + "\n" * (lines - text.count("\n")))


def count_title_lines(heads: Sequence[str], inches: float) -> int:
    """Count the lines that `set_titles` needs for the longest title.

    Args:
        heads: Title of each panel.
        inches: The width of a panel.
    """
    return max(sum(wrap_to_width(part, inches).count("\n") + 1 for part in head.split(" · ")) for head in heads)


def _panel_inches(axis: Axes) -> float:
    """Inches of width a panel will have, before the layout is computed."""
    figure, place = axis.get_figure(root=True), axis.get_subplotspec()
    assert figure is not None
    assert place is not None  # `make_panels` made it
    return figure.get_size_inches()[0] / place.get_gridspec().ncols - 0.35


def label_outer_axes(axes: Sequence[Axes], x: str, y: str) -> None:
    """Label the x axis of the lowest panel of each column, and the y axis of the first panel of each row.

    Args:
        axes: The panels.
        x: What the x axes show.
        y: What the y axes show.
    """
    places = [place for axis in axes if (place := axis.get_subplotspec()) is not None]
    for axis, place in zip(axes, places, strict=True):
        column, row = place.colspan.start, place.rowspan.start
        if not any(panel.colspan.start == column and panel.rowspan.start > row for panel in places):
            axis.set_xlabel(wrap_to_width(x, _panel_inches(axis)))
        if column == 0:
            axis.set_ylabel(y)


def figure_bytes(drawn: Drawn, ending: str, dpi: int = DPI) -> bytes:
    """Render a figure as a file without a date and without a note of the software that made it.

    An SVG has letters as outlines, ids from a fixed salt, and the words inside (`read_words`). A PDF has letters as
    letters of an embedded font, as papers want them.

    Args:
        drawn: The figure.
        ending: "svg", "png" or "pdf".
        dpi: Pixels per inch of a PNG.
    """
    metadata: dict[str, dict[str, str | None]] = {
        "svg": {"Description": "\n".join((drawn.caption, drawn.alt, *drawn.notes)), "Date": None, "Creator": None},
        "png": {"Software": None},
        "pdf": {"Subject": drawn.alt, "CreationDate": None, "Creator": None, "Producer": None},
    }
    file = io.BytesIO()
    with mpl.rc_context({key: STYLE[key] for key in ("svg.fonttype", "svg.hashsalt", "pdf.fonttype")}):
        drawn.figure.savefig(file, format=ending, dpi=dpi, metadata={"Title": drawn.title, **metadata[ending]})
    return file.getvalue()


def read_words(path: str | Path) -> tuple[str, str, str, list[str]]:
    """Read title, caption, alternative text and notes of an SVG that `save_figure` made.

    Raises:
        ArtifactError: The file is missing or damaged.
    """
    try:
        tree = ElementTree.parse(path)
        title, description = (
            tree.find(f".//{{http://purl.org/dc/elements/1.1/}}{tag}") for tag in ("title", "description")
        )
        caption, alt, *notes = (description.text or "").split("\n") if description is not None else ("", "")
        return str(title.text) if title is not None else "", caption, alt, notes
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise ArtifactError(f"{path}: damaged SVG ({error})") from error


def save_figure(drawn: Drawn, prefix: str | Path) -> None:
    """Write `prefix`.svg, .png and .pdf, each whole or not at all.

    Args:
        drawn: The figure.
        prefix: Path without the ending.
    """
    for ending in ("svg", "png", "pdf"):
        with open_atomic(f"{prefix}.{ending}", "wb") as file:
            file.write(figure_bytes(drawn, ending))
