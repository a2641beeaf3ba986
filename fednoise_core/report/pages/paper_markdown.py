"""A paper's page as Markdown, for docs/results: the same sections as the HTML page (`paper_page.PaperParts`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fednoise_core.report.pages.paper_sections import PaperParts
from fednoise_core.report.text.escape import markdown_text as md


def first_screen(paper: PaperParts, board: str, made: str) -> str:
    """The paper, the scale, the scoreboard, and what our numbers say.

    Args:
        paper: The sections.
        board: The figure as Markdown.
        made: Sentences on what was run.
    """
    title, link = paper.citation.get("title", ""), paper.citation.get("link", "")
    cited = [f"**{md(title)}.**" if title else "", f"{md(paper.cited)}." if paper.cited else ""]
    cited.append(f"[{md(link.removeprefix('https://'))}]({link})" if link else "")
    parts = [" ".join(filter(None, cited)), md(paper.scale_words), made, board, " ".join(map(md, paper.sentences))]
    return "\n\n".join(filter(None, parts))


def before_tables(paper: PaperParts) -> str:
    """Claims with reasons, ranks, and the reproduction at a glance.

    Args:
        paper: The sections.
    """
    parts = ["## The paper's claims"]
    if paper.claims[1]:
        parts += [
            "A claim is judged by the columns of the paper's table that were run: all agree, all disagree, or it is "
            "mixed. [claims.csv](claims.csv) has every claim and column.",
            _render_table(*paper.claims),
        ]
    else:
        parts.append("No claim was run.")
    if paper.why:
        said = [f"- **{md(claim)}.** Where: {md(where)}. Why: {md(why)}" for claim, where, why in paper.why]
        parts += ["### What disagrees, and why", "\n".join(said)]
    if paper.ranks:
        parts += ["### Ranks", "The paper's rank → ours, among the methods of a column that both have."]
        parts += [f"{md(title)}\n\n{_render_table(heads, rows, numbers=True)}" for title, heads, rows in paper.ranks]
    parts += [
        "## Reproduction",
        _render_table(*paper.summary, numbers=True),
        "Spearman's ρ: our methods' ranks with the paper's, the median over a table's columns, in brackets from the "
        "lowest to the highest.",
    ]
    return "\n\n".join(parts) + "\n"


def after_figures(paper: PaperParts, origins_file: str) -> str:
    """Settings with who says so, deviations, one cell again, and where each number comes from.

    Args:
        paper: The sections.
        origins_file: The CSV with a row for each run.
    """
    parts = ["## Settings, and who says so", md(paper.legend), _render_table(*paper.settings)]
    parts += ["## Deviations", "\n".join(f"- {md(note)}" for note in paper.notes)]
    if paper.differs[1]:
        parts += ["### Other values than the paper's own tables have", _render_table(*paper.differs)]
    if paper.changes[1]:
        parts += [f"### What scale {paper.scale} changes", _render_table(*paper.changes)]
    parts.append("## One cell again")
    if paper.examples:
        lines = "\n".join(paper.examples)
        parts += [
            f"One run of each table; the command of every run stands in [{origins_file}]({origins_file}).",
            f"```sh\n{lines}\n```",
        ]
    else:
        parts.append("No cell was run.")
    parts.append("## Where each number comes from")
    count = paper.origin["run"].nunique()
    parts.append(
        f"[{origins_file}]({origins_file}) has a row for each of {count:,} runs, and of each table that shows it: "
        "`spec.json`, its digest, code hash, device, versions, seconds, and the command that makes it again. A cell is "
        "the mean of its seeds."
    )
    code = _by_code(paper)
    return "\n\n".join([*parts, *([code] if code else [])]) + "\n"


def _by_code(paper: PaperParts) -> str:
    """Methods by code hash, device and versions: the short form of the origins."""
    keys = ["method", "code", "device", "versions"]
    rows = [
        [*map(str, ids), str(len(group.drop_duplicates("run")))]
        for ids, group in paper.origin.groupby(keys, sort=False)
    ]
    return _render_table(["method", "code hash", "device", "versions", "runs"], rows) if rows else ""


def _render_table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    marks = ["---", *(["--:" if numbers else "---"] * (len(heads) - 1))]
    return "\n".join(_render_line(row) for row in ([*map(md, heads)], marks, *([*map(md, row)] for row in rows)))


def _render_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
