"""Style of every figure, and the files that it is saved to.

Each method has a colour, a marker and a line style. Text has at least 7.5 pt in print. Files are reproducible bytewise.
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

# Inches: width of a page's text, and of one of two columns. Figures are not scaled in print, so 8 pt stay 8 pt.
WIDTHS = {"page": 7.0, "column": 3.4}
SIZE = 8  # font size in points; numbers at ticks have half a point less
DPI = 200
HEAT = "Blues"  # one hue, so that brightness alone carries the number
DIFFERENCE = "PRGn"  # green is above 0; suitable for red-green colour blindness
INK, FAINT = "#222222", "#8a8a8a"
# Round dots, which differ from the dashes of all methods.
CEILING: dict[str, Any] = {
    "color": "#6b6b6b",
    "linestyle": (0, (0.05, 1.7)),
    "linewidth": 1.7,
    "dash_capstyle": "round",
}

# Three colours for each family of methods, each for a white and for a dark background. The hues are those of Okabe and
# Ito (2008) and Tol (2021) with a contrast of 3:1 or more. Orange is reserved for wrong labels and results.
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
FILL, WRONG, QUIET = "#0072B2", "#D55E00", "#7A7A7A"  # normal, wrong, and less important parts
DOT: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 4.5}
HOLLOW: dict[str, Any] = {**DOT, "color": QUIET, "markerfacecolor": "white"}  # for methods that are not compared
BASELINE: dict[str, Any] = {"color": QUIET, "linestyle": "-", "linewidth": 1.0, "zorder": 1}
# 9 and 7 have no common divisor, so 63 methods differ even without colour, in a grey print.
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
MARKED, APART = 0.2, 3  # distance of markers as a share of a panel; number of lines with different positions

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
    "text.parse_math": False,  # $ in a label is shown as $
    "svg.fonttype": "path",
    "svg.hashsalt": "fednoise_core",
    "pdf.fonttype": 42,  # embedded fonts, since publishers refuse Type 3 fonts
    "axes.unicode_minus": True,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "figure.constrained_layout.hspace": 0.05,
    "figure.constrained_layout.wspace": 0.04,
}


class Look:
    """The colour, marker and line style of one method, the same in every figure of a study.

    Args:
        colour: Index of its colour in COLOURS and DARK.
        place: Number from which its marker and dashes are chosen.
    """

    def __init__(self, colour: int, place: int) -> None:
        self.place, self.colour = colour, COLOURS[colour]
        self.family = (colour - 1) // SHADES
        self.marker = MARKERS[place % len(MARKERS)]
        self.dash = DASHES[place % len(DASHES)]

    def line_style(self, hollow: bool = False, **keywords: Any) -> dict[str, Any]:
        """Return keyword arguments of `Axes.plot`. `keywords` override some. `hollow` is for methods not compared."""
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

    Name and family decide the colour, which is the same in all studies. Marker and dashes depend on the method's place
    in the study's order, FedAvg first. Up to seven methods of one colour differ by their dashes.

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
    """Style lines with many points. Lines of one family, whose colours are similar, have a few markers.

    Args:
        looks: The looks of the study's methods.
        methods: The drawn methods.
        hollow: The methods that are not compared. They have hollow markers.

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
    """Find a method's index in COLOURS. The name decides the shade, so figures do not depend on the other methods."""
    if name == "fedavg":
        return 0
    shade = zlib.crc32(name.encode()) % SHADES
    return 1 + SHADES * (list(FAMILY_COLOURS).index(family) if family in FAMILY_COLOURS else 0) + shade


@contextlib.contextmanager
def use_house_style() -> Iterator[None]:
    """Draw everything in this context in the house style, independently of the user's matplotlibrc."""
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
    """Choose black or white text on a coloured background, whichever has more contrast.

    Args:
        colour: The background's colour, in any form that matplotlib accepts.
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
        columns: Panels side by side. In the width of a column the default is one, or two for more than two panels. In
            the width of a page it is two for up to four panels, and three for more.
        share: `sharex` and `sharey` of `Figure.subplots`.

    Returns:
        The figure and its panels.
    """
    width = width_inches(settings)
    columns = columns or ((1 if count <= 2 else 2) if width < 5 else 2 if count in (2, 4) else 3)
    columns = min(columns, count)
    rows = -(-count // columns)
    if columns == 1 and width > 5:
        width = 4.8  # a single panel as wide as a page would be too flat
    figure = make_canvas(width, rows * height)
    grid = figure.subplots(rows, columns, squeeze=False, **share)
    flat = list(grid.flat)
    for spare in flat[count:]:
        spare.remove()
    if share.get("sharex"):  # panels above an empty place keep their tick numbers
        for axes in flat[count - columns : count]:
            axes.tick_params(labelbottom=True)
    return figure, flat[:count]


def add_legend_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Add one legend below all panels, and make the figure taller by its height.

    Args:
        figure: The figure.
        handles: Lines and markers with their labels. Without handles there is no legend.
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
    lines = rows + sum(str(handle.get_label()).count("\n") for handle in handles)  # long entries have their own row
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
    """Set panel titles with as many lines as the longest title needs. Lines break first at the dots between parts.

    Args:
        axes: The panels.
        heads: Title of each.
        inches: The width of each title. Default: the panel's share of the figure.
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
    """Render a figure as a file without a date and without the name of the software.

    An SVG has text as outlines, ids from a fixed salt, and title, caption and notes as data (`read_words`). A PDF has
    text in an embedded font, as publishers require.

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
    """Write `prefix`.svg, .png and .pdf, each atomically.

    Args:
        drawn: The figure.
        prefix: Path without the ending.
    """
    for ending in ("svg", "png", "pdf"):
        with open_atomic(f"{prefix}.{ending}", "wb") as file:
            file.write(figure_bytes(drawn, ending))
