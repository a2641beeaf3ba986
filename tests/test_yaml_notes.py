"""Comments of a YAML file: each belongs to the value that it stands behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednoise_core.io import SpecError
from workflow_scripts.yaml_notes import notes

TEXT = """\
# The head
# of the file.
title: "no # comment" # of the title
text: >-
  folded # no comment
  text
group: &group # of the group
  one: {a: 1, b: [2, 3]} # of one
  two: 'x # y'
other: *group # of the alias
list:
  - {a: 1} # of the first item
  - a: 2 # of a in the second
    b:
      [3,
       4] # of b
  # before the third,
  # in two lines
  - {a: 5}
  - <<: *group
    c: 6 # of c
"""


def test_each_comment_is_about_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(TEXT)
    assert [tuple(note) for note in notes(path)] == [
        ((), "The head of the file."),
        (("title",), "of the title"),
        (("group",), "of the group"),
        (("group", "one"), "of one"),
        (("other",), "of the alias"),
        (("list", 0), "of the first item"),
        (("list", 1, "a"), "of a in the second"),
        (("list", 1, "b"), "of b"),
        (("list", 2), "before the third, in two lines"),
        (("list", 3, "c"), "of c"),
    ]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("a: [1\n")
    with pytest.raises(SpecError, match=r"b\.yaml: cannot be read"):
        notes(tmp_path / "b.yaml")
    with pytest.raises(SpecError, match=r"c\.yaml: cannot be read"):
        notes(tmp_path / "c.yaml")
