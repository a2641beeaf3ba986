"""Texts from settings files (titles, labels, names of classes), made safe for where they are shown."""

import re
import textwrap
import unicodedata

# LaTeX's own utf8 has accented Latin letters, but not the following characters. A test finds missing ones.
VARIANTS = {"EPSILON": "varepsilon", "PHI": "varphi", "LAMDA": "lambda"}  # other letters have their Unicode names
GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
MATHS = {
    "±": r"\pm",
    "−": "-",
    "×": r"\times",
    "√": r"\surd",
    "≤": r"\le",
    "≥": r"\ge",
    "≈": r"\approx",
    "≠": r"\ne",
    "∞": r"\infty",
    "∈": r"\in",
    "→": r"\to",
    "←": r"\gets",
    "↔": r"\leftrightarrow",
    "⌊": r"\lfloor",
    "⌋": r"\rfloor",
    "∆": r"\Delta",
    "µ": r"\mu",
    "ℓ": r"\ell",
    "½": r"\frac12",
    "ϵ": r"\epsilon",
    "◂": r"\triangleleft",
}


def _greek_name(letter: str) -> str:
    """The name of a Greek letter in LaTeX: "rho", "Gamma"."""
    *_, size, _, name = unicodedata.name(letter).split()
    return name.capitalize() if size == "CAPITAL" else VARIANTS.get(name, name.lower())


TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",  # in TeX's own encoding of fonts these three are other characters
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "¶": r"$^\P$",
    "–": "--",
    "—": "---",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
    "\u202f": r"\,",
    "\u2009": r"\,",
    "\xa0": "~",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "°": r"$^\circ$",
    "²": r"$^2$",
    "³": r"$^3$",
    **{sign: rf"${command}$" for sign, command in MATHS.items()},
    **{letter: rf"$\{_greek_name(letter)}$" for letter in GREEK},
    **{sign: f"$_{digit}$" for digit, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}


def one_line(text: str) -> str:
    """A text from a settings file without line ends, tabs or other control characters.

    Neither a table's row nor a LaTeX argument may hold an empty line, and XML holds no control characters. Other spaces
    stay as they are.
    """
    return re.sub(r"[ \x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).strip(" ")


def keep_numbers_whole(text: str) -> str:
    """Replace spaces before numbers, and around a sign between two, by no-break spaces.

    So "α = 0.3" stays on one line.

    Args:
        text: One line or several.
    """
    return re.sub(r" (?=[−-]?\d|[=±] )|(?<=[=±]) ", "\xa0", text)


def wrap_text(text: str, letters: int, break_long_words: bool = True) -> str:
    """Break a text into lines, as `keep_numbers_whole` allows, with plain spaces.

    Args:
        text: One paragraph.
        letters: Largest number of characters in a line.
        break_long_words: Whether longer words are broken.
    """
    broken = textwrap.fill(keep_numbers_whole(text), letters, break_long_words=break_long_words, break_on_hyphens=False)
    return broken.replace("\xa0", " ")


def markdown_text(text: str) -> str:
    """Make a text safe inside GitHub Markdown, also in a table's cell.

    Args:
        text: Shown as it is: HTML, links and other markup in it have no effect.
    """
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", one_line(text))
    return re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")


def latex_text(text: str) -> str:
    """Make a text safe inside LaTeX.

    Args:
        text: Every character of it stands for itself. Line ends become spaces, so it stays one paragraph.
    """
    return "".join(TEX.get(letter, letter) for letter in one_line(text))
