"""Texts from settings files (titles, labels, names of classes), made safe for where they are shown."""

from __future__ import annotations

import re
import textwrap
import unicodedata

__all__ = ["filled", "latex_text", "markdown_text", "one_line", "unbroken"]

# LaTeX's own utf8 knows Latin letters with accents, and none of what follows. A test looks for what is not here.
VARIANTS = {"EPSILON": "varepsilon", "PHI": "varphi", "LAMDA": "lambda"}  # others are called as Unicode calls them
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


def _greek(letter: str) -> str:
    """ "ρ" -> "rho", "Γ" -> "Gamma"."""
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
    **{sign: rf"${words}$" for sign, words in MATHS.items()},
    **{letter: rf"$\{_greek(letter)}$" for letter in GREEK},
    **{sign: f"$_{digit}$" for digit, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}


def one_line(text: str) -> str:
    """A text from a settings file without line ends, tabs or other control characters: neither a table's row nor a
    LaTeX argument may hold an empty line, and XML holds no control characters. Other spaces stay as they are.
    """
    return re.sub(r"[ \x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).strip(" ")


def unbroken(text: str) -> str:
    """A text that is not broken before a number, nor around a sign between two: "α = 0.3" stays on a line."""
    return re.sub(r" (?=[−-]?\d|[=±] )|(?<=[=±]) ", "\xa0", text)


def filled(text: str, letters: int, break_long_words: bool = True) -> str:
    """The text in lines of so many letters, broken as `unbroken` says, with plain spaces."""
    broken = textwrap.fill(unbroken(text), letters, break_long_words=break_long_words, break_on_hyphens=False)
    return broken.replace("\xa0", " ")


def markdown_text(text: str) -> str:
    """A text inside GitHub Markdown, also in a table's cell: shown as it is, no HTML, link or other markup."""
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", one_line(text))
    return re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")


def latex_text(text: str) -> str:
    """A text inside LaTeX: every character of its own stands for itself; one paragraph."""
    return "".join(TEX.get(letter, letter) for letter in one_line(text))
