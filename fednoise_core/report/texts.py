"""Texts from settings files (titles, labels, names of classes), made safe for where they are shown."""

from __future__ import annotations

import re

__all__ = ["latex_text", "markdown_text", "one_line"]

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
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "¶": r"$^\P$",
    "–": "--",
    "−": "$-$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "\u202f": r"\,",
    "\xa0": "~",
    "“": "``",
    "”": "''",
}


def one_line(text: str) -> str:
    """A text from a settings file without line ends, tabs or other control characters: neither a table's row nor a
    LaTeX argument may hold an empty line, and XML holds no control characters. Other spaces stay as they are.
    """
    return re.sub(r"[ \x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).strip(" ")


def markdown_text(text: str) -> str:
    """A text inside GitHub Markdown, also in a table's cell: shown as it is, no HTML, link or other markup."""
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", one_line(text))
    return re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")


def latex_text(text: str) -> str:
    """A text inside LaTeX: every character of its own stands for itself; one paragraph."""
    return "".join(TEX.get(letter, letter) for letter in one_line(text))
