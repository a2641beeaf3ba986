"""The code in docs/ runs as printed, and pages of methods agree with code and sources."""

import csv
import importlib.util
import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fednoise_core import methods
from workflow_scripts.commands.main import VERBS
from workflow_scripts.docgen import references

ROOT = Path(__file__).parents[2]
METHOD_PAGES = sorted(page for page in (ROOT / "docs/methods").glob("*.md") if page.name != "README.md")
WRITTEN_BY_READERS = "background|bars|blocks|fedpull|mine|range|sizes|test_fedpull|wedges|with_NAME"
KINDS = yaml.load((ROOT / "config/schema/method.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
CITED = re.compile(r"\[([^]]+)\]\([^)\s]*references\.md#(\w+)\)")


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_the_messages_of_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(.+?)`", (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE)
    files = [*ROOT.glob("fednoise_core/**/*.py"), *ROOT.glob("workflow_scripts/**/*.py"), *ROOT.glob("rules/*.smk")]
    code = "".join(re.sub(r"[\"']\s+f?[\"']", "", file.read_text(encoding="utf-8")) for file in files)
    code = re.sub(r"\{[^{}]*\}", "…", code)
    of_others = {"At least one job did not complete successfully", "Directory cannot be locked", "dvc status"}
    generated = {"the key 'sparsity' is missing": "the key … is missing"}
    absent = [text for text in rows if text not in of_others and generated.get(text, text) not in code]
    assert len(rows) > 20
    assert absent == []


def test_the_method_of_the_page_equals_fedprox(monkeypatch: pytest.MonkeyPatch) -> None:
    import toy

    code, schedule = blocks(ROOT / "docs/add_a_method.md")
    module = types.ModuleType("page_fedprox")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(methods.METHODS, "printed", "page_fedprox:FedProx")
    exec(compile(code, "docs/add_a_method.md", "exec"), module.__dict__)
    ends = [toy.play(name, {"mu": 0.5}, train={"rounds": 2}).outcome.state for name in ("printed", "fedprox")]
    assert toy.same_state(*ends)
    assert not toy.same_state(ends[0], toy.play("fedavg", train={"rounds": 2}).outcome.state)

    from fednoise_core.engine.api import Work

    scope: dict[str, Any] = {"Work": Work}
    exec(compile(schedule, "docs/add_a_method.md", "exec"), scope)

    class Fading(module.FedProx):
        prepare_fit = scope["prepare_fit"]

        def correct_gradient(self, grad: Any, w: Any, broadcast: Any, client_state: Any) -> None:
            grad.add_(w.trained.detach() - broadcast["model"].trained, alpha=client_state["mu"])

    runs = [(fed := toy.toy_federation(), kind(mu=0.5, train=fed.train)) for kind in (Fading, module.FedProx)]
    states = [method.init_state(fed) for fed, method in runs]
    for number in (1, 2):
        for (fed, method), state in zip(runs, states, strict=True):
            state.round = number
            method.run_round(fed, state)
        assert toy.same_state(*states) is (number == 1)


def test_the_shapes_of_a_round_and_a_step_run_as_printed() -> None:
    """The two blocks of "The shapes of things" are the bodies of a method that counts the samples in its carry."""
    import toy

    from fednoise_core.methods.fedavg import FedAvg
    from fednoise_core.ops.weights import Entry, Layout

    text = (ROOT / "docs/method_reference.md").read_text(encoding="utf-8")
    scope: dict[str, object] = {"Layout": Layout, "Entry": Entry, "torch": torch}
    for code in re.findall(r"```text\n(.*?)```", text, re.DOTALL):
        exec(compile(code, "docs/method_reference.md", "exec"), scope)
    hooks = {name: scope[name] for name in ("run_round", "init_carry", "train_step", "make_update")}
    counting = type("Counting", (FedAvg,), hooks)
    ends = []
    for kind in (counting, FedAvg):
        fed = toy.toy_federation()
        method = kind(train=fed.train)
        state = method.init_state(fed)
        state.round = 1
        assert method.run_round(fed, state) == {"clients": 4}
        ends.append(state)
    assert toy.same_state(ends[0].server, ends[1].server)
    seen = {c: int(carry["seen"]["n"]) for c, carry in ends[0].clients.items()}
    assert seen == {c: 2 * toy.SIZES[c] for c in toy.toy_federation().sample_cohort(1)}  # two epochs


def test_files_modules_and_commands_that_pages_name_exist() -> None:
    folders = (path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = [path.as_posix() for folder in folders for path in folder.rglob("*.*")]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", ROOT / "benchmarks/README.md"]
    pages += sorted(set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs/changelog.md"})
    wrong = []
    for text in (page.read_text(encoding="utf-8") for page in pages):
        names = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|smk|js|yaml))`", text)
        wrong += [name for name in names if not any(file.endswith(f"/{name}") for file in files)]
        modules = re.findall(r"python -m ((?:fednoise_core|workflow_scripts|benchmarks)[\w.]*)", text)
        wrong += [name for name in modules if importlib.util.find_spec(name.rstrip(".")) is None]
        code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
        wrong += [name for name in re.findall(r"\bfednoise ([a-z][\w-]*)", code) if name not in VERBS]
    assert [name for name in wrong if not re.fullmatch(WRITTEN_BY_READERS, Path(name).stem)] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("add_a_*.md")), ids=lambda page: page.stem)
def test_a_page_to_add_something_is_short_and_ruff_accepts_its_modules(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.partition("## Reference")[0].count("\n") <= 60
    before, *modules = re.split(r'```python\n(?=""")', text)
    for module in modules:
        place = re.findall(r"`([\w/]+\.py)`", before)[-1]
        check = ["ruff", "check", "--no-cache", "--output-format=concise", f"--stdin-filename={place}", "-"]
        result = subprocess.run(check, input=module.partition("```")[0], text=True, cwd=ROOT, capture_output=True)
        assert result.returncode == 0, result.stdout
        before = module
    assert modules


@pytest.mark.parametrize("page", ["clean_labels", "extend"])
def test_the_start_pages_run_as_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(ROOT / f"docs/start/{page}.md")
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("printed")
    monkeypatch.setitem(sys.modules, "printed", module)
    exec(compile(code, page, "exec"), module.__dict__)
    if page == "clean_labels":
        rows = (tmp_path / "cleaned/suspects.csv").read_text(encoding="utf-8").splitlines()
        assert len(rows) > 900  # four fifths of digits' training images
        assert {row.split(",")[3] for row in rows[1:]} == {"north", "south", "west"}
        assert len((tmp_path / "cleaned/sites.csv").read_text(encoding="utf-8").splitlines()) == 4


def format_citation(entry: dict[str, str]) -> str:
    """Authors and year, as in "Li et al. (2020)"."""
    names = [author.partition(",")[0] for author in entry["author"].split(" and ")]
    return f"{names[0] + ' et al.' if len(names) > 2 else ' and '.join(names)} ({entry['year']})"


def test_every_citation_has_its_entry_and_every_entry_is_cited() -> None:
    entries = references.read_entries()
    cited = {page: CITED.findall(page.read_text(encoding="utf-8")) for page in (ROOT / "docs").rglob("*.md")}
    for page, links in cited.items():
        for link_text, key in links:
            texts = (entries[key]["title"], format_citation(entries[key]))
            assert " ".join(link_text.split()) in texts, f"{page.name}: {key}"
    assert {key for links in cited.values() for _, key in links} == entries.keys()
    assert [page.name for page in METHOD_PAGES if not cited[page]] == []


def read_settings(text: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Read the (setting, default) rows of a method's page, and the pages whose settings it links."""
    section = text.partition("## Settings")[2].partition("## Notes")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*?\| ([^|]+) \|", section, re.MULTILINE)
    return rows, re.findall(r"\((\w+)\.md#settings\)", section)


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_the_page_of_a_method_has_its_sections_and_the_defaults_of_the_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Equations", "Settings", "Notes", "Deviations", "Results"]
    rows, linked = read_settings(text)
    common = {} if page.stem == "fedavg" else KINDS["fedavg"]["properties"]
    settings = {name: schema for name, schema in KINDS[page.stem]["properties"].items() if common.get(name) != schema}
    defaults = {name: schema.get("default", "required") for name, schema in settings.items()}
    for linked_page in linked:  # a page may leave the settings that it shares with another one to that page
        shared, _ = read_settings((page.parent / f"{linked_page}.md").read_text(encoding="utf-8"))
        rows += [row for row in shared if row[0] in defaults]
    assert sorted(name for name, _ in rows) == sorted(defaults)
    for name, cell in rows:
        assert cell in (defaults[name], json.dumps(defaults[name])) or float(cell) == pytest.approx(
            defaults[name], rel=1e-3
        )


NUMBER = re.compile(r"[−\d][\d.]*( ± [\d.]+)?|–|not run")


def read_rows(table: str) -> list[tuple[str, list[str]]]:
    """The rows of a Markdown table below its head: the label, and the cells without marks such as **, † and §."""
    rows = [[re.sub(r"[*†‡§¶]", "", cell).strip() for cell in row.strip("| ").split("|")] for row in table.splitlines()]
    return [(label, cells) for label, *cells in rows[2:]]


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_tables_of_results_have_rows_of_the_study_named_above_them(page: Path) -> None:
    """The test does not check that labels belong to their numbers, nor the prose."""
    results = page.read_text(encoding="utf-8").split("\n## Results\n")[1]
    tables = re.findall(r"((?:^[^|\n].*\n)+)\n((?:^\|.*\n)+)", results, re.MULTILINE)  # a paragraph, then a table
    assert len(tables) == len(re.findall(r"^\|---", results, re.MULTILINE)), "a table without a paragraph above it"
    for above, table in tables:
        published: dict[str, list[str]] = {}  # the numbers of a method in all tables of the studies, in order
        for study in re.findall(r"\(\.\./results/([\w-]+)/README\.md\)", above):
            text = (ROOT / "docs/results" / study / "README.md").read_text(encoding="utf-8")
            for study_table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
                for label, cells in read_rows(study_table):
                    published.setdefault(label, []).extend(cells)
        for label, cells in read_rows(table):
            assert all(map(NUMBER.fullmatch, cells)), f"{label}: {cells}"
            numbers = [cell for cell in cells if cell[0] not in "–n"]
            assert any(is_in_order(numbers, row) for row in published.values()), f"{label}: {numbers}"


def is_in_order(part: list[str], row: list[str]) -> bool:
    left = iter(row)
    return all(cell in left for cell in part)


def read_gains(table: str, ending: str = "", noise: str = "sym40-exact") -> dict[str, str]:
    """Gains over FedAvg in a published accuracy table, by method without its ending, as texts such as "+18.7"."""
    with (ROOT / "docs/results" / table).open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["noise"] == noise]
    means = {row["method"].removesuffix(ending): float(row["last10_mean_mean"]) for row in rows}
    return {method: f"{mean - means['fedavg']:+.1f}" for method, mean in means.items()}


def test_gains_by_width_in_prose_are_those_of_the_tables() -> None:
    page = (ROOT / "docs/results/fedmixcon-widths/README.md").read_text(encoding="utf-8")
    hand_written = page.partition("<!-- written by hand -->")[2].partition("<!-- end")[0]
    printed = dict(read_rows(re.findall(r"(?:^\|.*\n)+", hand_written, re.MULTILINE)[0]))
    tables = {8: "fedmixcon-widths/width8.csv", 16: "fedmixcon-widths/width16.csv", 128: "paper-size/accuracy.csv"}
    columns = ("fedlsr", "mixpred", "fedmixcon")
    for width, table in tables.items():
        gains = read_gains(table, f"@train.net.width={width}")
        (cells,) = (row for label, row in printed.items() if label.split(",")[0] == str(width))
        pairs = [(gains.get(method, cell), cell) for method, cell in zip(columns, cells, strict=True)]
        assert all(ours == cell for ours, cell in pairs), (width, pairs)
    points = [read_gains(tables[128], noise=noise)["fedmixcon"].lstrip("+") for noise in ("sym40-exact", "sym50-exact")]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"FedMixCon gains {' and '.join(points)} points over FedAvg" in readme
    papers = " ".join((ROOT / "docs/papers.md").read_text(encoding="utf-8").split())
    assert f"{points[0]} at its [full width](results/paper-size/README.md)" in papers
