"""The four papers: every table and figure has a target, the runs are the grid's, and all is planned in seconds."""

import csv
import re
import time
from pathlib import Path

import pytest

from fednoise_core.io import SpecError
from workflow_scripts import paths
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.paper_tables import paper_cells
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
PAPERS = {  # table or figure → runs at the papers' size: methods × settings × seeds (Clothing1M's are not here)
    "feddpcont": {
        "table1": 0,
        "table2": (15 * 8 + 5 * 2) * 3,  # other readings at one level of noise
        "table3": 10 * 4 * 3,  # of the 11 methods two are Co-teaching, one of them for Clothing1M alone
        "table4": 10 * 10 + 3,  # one row is another reading, at one budget only
        "table6": 15 * 8 * 3,
        "table7": 13 * 4 * 3,
        "table8": 3 * 16 * 3,
        "table9": 3 * 4 * 3,
        "table10": (3 * 11 + 1) * 3,  # labels as released in one column
        "table11": 3 * 9 * 3,
        "table12": 0,
        "figure3": None,
        "figure4": None,
    },
    "fedefc": {
        "table1": 0,
        "table2": ((8 + 1) * 9 + 2) * 3,  # FedCorr without mixup in two columns
        "table3": (8 * 9 + 3) * 3,
        "figure2": 3,
        "figure2-cosine": 3,
    },
    "fedhnl": {"table1": 4 * 2 * 3, "table2": 5 * 2 * 3, "table3": 6 * 2 * 3},
    "fedmixcon": {
        "table1": 5 * 2 * 3,
        "table2": 0,
        "table3": (6 * 12 + 4 + 4 + 5 + 6 + 4 + 2 + 2 + 2) * 3,  # two readings at one noise; other readings and rates
        "table4": (5 * 2 + 8) * 3,
        "figure1": 5 * 2 * 3,
        "figure6": 5 * 6 * 3,
        "figure7": 5 * 3,
    },
}


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    read = read_yaml("config/config.yaml")
    return lambda scale="paper", folder=ROOT, **changes: Project({**read, "scale": scale, **changes}, folder)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_and_figure_has_its_runs(paper: str, project) -> None:
    study = Study(project(), paper)
    assert {run.name for run in study.runs if run.own} == {paper}
    specs = {**study.tables, **study.figures}
    for name, count in PAPERS[paper].items():
        assert name in specs
        if count is not None:
            assert len(study.select_runs(specs[name])) == count, name


@pytest.mark.parametrize("paper", PAPERS)
def test_the_papers_numbers_are_all_of_cells_that_the_study_has(paper: str, project) -> None:
    study = Study(project(), paper)
    with (ROOT / f"config/papers/tables/{paper}.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"]]
    for row in rows:
        spec = study.tables[f"table{row['table']}"]
        cell = (row["dataset"], row["noise"], row["partition"], row["method"])
        assert list(cell) in spec["cells"], (row["table"], cell)
        assert not row["member"] or int(row["member"]) < spec["clients"]
        assert row["mean"] or "unreadable" in row["note"] or "dash" in row["note"]
        assert not row["mean"] or 1 < float(row["mean"]) < 100
    assert {f"table{row['table']}" for row in rows} == {
        n for n, table in study.tables.items() if table["kind"] == "reproduction"
    }


def test_all_papers_are_planned_in_seconds(project) -> None:
    before = time.process_time()
    planned = project()
    runs = sum(len(Study(planned, name).runs) for name in planned.paper_names)
    assert time.process_time() - before < 20  # CPU seconds; about 1 on an idle core
    assert sorted(planned.paper_names) == sorted(PAPERS)
    assert runs == 1122 + 468 + 72 + 372


def test_smoke_is_small_and_shows_everything(project) -> None:
    smoke = project("smoke")
    runs = 0
    for paper in PAPERS:
        study, full = Study(smoke, paper), Study(project(), paper)
        runs += len(study.runs)
        assert {*study.tables, *study.figures} == {*full.tables, *full.figures}
        for name, spec in study.tables.items():
            selected = study.select_runs(spec)
            assert {run.seed for run in selected} <= {0}
            assert all(run.spec["train"]["rounds"] <= 4 for run in selected)
            assert spec.get("cells") == full.tables[name].get("cells")  # what is left out reads "not run"
    assert runs <= 40


def test_cpu_keeps_the_protocol_of_the_paper(project) -> None:
    """Scale cpu narrows the net. It may evaluate less often and use fewer images, but trains as much on each."""
    protocol = ("rounds", "epochs", "batch", "lr", "momentum", "weight_decay", "fraction", "augment", "optimiser")
    for paper in PAPERS:
        full, small = Study(project(), paper), Study(project("cpu"), paper)
        own_id = {stand_in: original for original, stand_in in small.dataset_substitutes.items()}
        papers = {(run.dataset, run.noise, run.partition, run.method): run.spec["train"] for run in full.runs}
        for run in small.runs:
            ours = run.spec["train"]
            dataset = own_id.get(run.dataset, run.dataset)
            if dataset in full.absent:
                continue
            printed = papers[dataset, run.noise, run.partition, run.method]
            assert {key: ours.get(key) for key in protocol} == {key: printed.get(key) for key in protocol}, run.folder
            assert ours["net"] != printed["net"]


def test_absent_data_leaves_cells_not_run_unless_there_is_nothing_else(project, tmp_path: Path) -> None:
    study = Study(project(), "feddpcont")
    assert study.absent == ["clothing1m-public"]
    assert study.tables["table7"]["absent"] == ["clothing1m-public"]
    assert study.tables["table2"]["absent"] == []
    study.check_present("table7")  # has other columns
    assert study.missing_data_message().startswith("missing data sets: clothing1m-public. Their cells read")
    with pytest.raises(SpecError, match=r"feddpcont.yaml: tables\.table12: shows only clothing1m-public, which is"):
        study.check_present("table12")
    assert paths.reference_files(study.tables["table12"]) == ["config/papers/tables/feddpcont.csv"]


def test_a_figure_of_absent_data_says_so_in_the_page_and_is_an_error_by_its_own_name(
    config_copy: Path, project
) -> None:
    file = config_copy / "config/papers/feddpcont.yaml"
    figures = 'figures:\n  shop: {kind: curves, title: "Clothes", datasets: [clothing1m-public]}\n'
    file.write_text(file.read_text().replace("figures:\n", figures, 1))
    study = Study(project(folder=config_copy), "feddpcont")
    assert study.page_metadata()["left_out"] == {"Clothes": "not run (data absent)"}
    with pytest.raises(SpecError, match=r"feddpcont.yaml: figures\.shop: shows only clothing1m-public"):
        study.check_present("shop")


def test_data_of_other_studies_may_not_be_absent(project, config_copy: Path) -> None:
    text = (config_copy / "config/papers/feddpcont.yaml").read_text()
    (config_copy / "config/papers/feddpcont.yaml").unlink()
    (config_copy / "config/studies/mine.yaml").write_text(text)
    with pytest.raises(SpecError, match=r"clothing1m-public: .*does not exist"):
        Study(project(folder=config_copy), "mine")


LISTS = {  # paper → a list of methods of its grid, and the tables that share it
    "feddpcont": ("rhfl,\n       feddpcont, feddpcont-nodp]", ["table6"], 2 * 8 * 3),
    "fedefc": ("forward-prestop, fedefc]", ["table3"], 3 * 6 * 3),  # table 2 has a row more, so a list of its own
    "fedhnl": ("[local, fedmd, feddf, fedhnl]}", ["table1"], 2 * 3),  # RHFL: each client has another net
    "fedmixcon": ("rofl-oracle, fedmixcon]\n", [], 12 * 3),
}


@pytest.mark.parametrize("paper", LISTS)
def test_a_further_method_is_one_word_in_one_line(paper: str, project, config_copy: Path) -> None:
    """It adds its own runs, and cells to the tables that show it; every other run and table stays as it is."""
    before = Study(project(folder=config_copy), paper)
    (ending, shown_in, count), new = LISTS[paper], "rhfl" if paper == "fedhnl" else "gce"
    file = config_copy / f"config/papers/{paper}.yaml"
    text = file.read_text()
    assert text.count(ending) == 1
    file.write_text(text.replace(ending, ending.replace("]", f", {new}]"), 1))
    after = Study(project(folder=config_copy), paper)
    old = {run.folder: run.spec for run in before.runs}
    now = {run.folder: run.spec for run in after.runs}
    assert {folder: spec for folder, spec in now.items() if folder in old} == old
    assert all(f"/{new}/" in folder for folder in now.keys() - old.keys())
    assert len(now.keys() - old.keys()) == count
    assert [name for name in after.tables if after.tables[name] != before.tables[name]] == shown_in


def test_a_scale_keeps_the_ids_of_the_paper(project) -> None:
    study = Study(project("cpu"), "feddpcont")
    spec = study.tables["table8"]
    assert spec["dataset_substitutes"] == {
        "cifar10-public": "cifar10-25k-public",
        "cifar100-public": "cifar100-25k-public",
    }
    assert {cell[0] for cell in spec["cells"]} == {"cifar10-public", "cifar100-public"}
    assert {run.dataset for run in study.select_runs(spec)} == {"cifar10-25k-public", "cifar100-25k-public"}
    assert {tuple(cell) for cell in spec["cells"]} == set(paper_cells(study, study.full["tables"]["table8"]))
    assert study.figures["curves"]["datasets"] == ["cifar10-25k-public"]


def test_setup_tables_say_what_this_study_uses(project) -> None:
    study = Study(project(), "fedefc")
    ours = study.tables["table1"]["ours"]
    assert [row["cifar10-fedefc"] for row in ours] == [10, 100, "resnet18", 200, 10]
    assert [row["mnist"] for row in Study(project(), "fedmixcon").tables["table2"]["ours"]] == [0.15, 0.2, 0.25]
    assert [row["mnist-fedefc"] for row in Study(project("smoke"), "fedefc").tables["table1"]["ours"]][3] == 4


@pytest.mark.parametrize("paper", PAPERS)
def test_a_subset_is_some_of_the_runs_in_the_same_folder(project, paper: str) -> None:
    full, subset = Study(project("cpu"), paper), Study(project("cpu", subset="first"), paper)
    runs = {run.folder for run in subset.runs}
    assert runs < {run.folder for run in full.runs}
    for name, spec in full.tables.items():
        assert spec.get("cells") == subset.tables[name].get("cells"), "the cells stay, and read: not run"


def changed(folder: Path, old: str, new: str) -> None:
    file = folder / "config/papers/fedhnl.yaml"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_a_subset_holds_what_lies_in_one_of_its_boxes(project, config_copy: Path) -> None:
    boxes = "[{noises: [sym20-seed0], methods: [fedhnl-hma], seeds: [1]}, {methods: [fedmd], seeds: [0]}]"
    changed(config_copy, "  first: [{seeds: [0]}]", f"  first: {boxes}")
    runs = Study(project("cpu", config_copy, subset="first"), "fedhnl").runs
    noises = ["pair10-seed0", "pair20-seed0", "sym10-seed0", "sym20-seed0"]
    assert sorted((run.method, run.noise, run.seed) for run in runs) == [
        ("fedhnl-hma", "sym20-seed0", 1),
        *(("fedmd", noise, 0) for noise in noises),
    ]


@pytest.mark.parametrize(
    ("subset", "box", "message"),
    [
        (
            "frist",
            "{seeds: [0]}",
            "subset: 'frist' is no subset of config/papers/fedhnl.yaml at scale cpu; did you mean 'first'?",
        ),
        ("first", "{noises: [sym20-seed1]}", "subsets.first[0].noises[0]: the grid has no 'sym20-seed1'"),
        ("first", "{seeds: [4, 5]}", "subsets.first[0].seeds[1]: the grid has no 5"),  # 4 is a seed of scale cpu
        (
            "first",
            "{noises: [sym10-seed0], methods: [fedhnl-cl]}",
            "subsets.first: no run of the grid is in this subset",
        ),
    ],
)
def test_wrong_subsets_are_refused(project, config_copy: Path, subset: str, box: str, message: str) -> None:
    changed(config_copy, "  first: [{seeds: [0]}]", f"  first: [{box}]")
    with pytest.raises(SpecError, match=re.escape(message)):
        Study(project("cpu", config_copy, subset=subset), "fedhnl")


def test_a_subset_of_no_study_is_no_fault_of_the_first(project, config_copy: Path) -> None:
    with pytest.raises(SpecError, match=r"^subset: 'nosuch' is no subset of any study"):
        Study(project("paper", config_copy, subset="nosuch"), "quick")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{id: cl-helps,", "{id: hma-hurts,", "tables.table3.claims[1].id: 'hma-hurts' is repeated in the table"),
        ("{id: cl-helps,", "{id: CL, ", "tables.table3.claims[1].id: "),
        (
            "above: [fedhnl-cl, local]",
            "above: [fedhnl-cI, local]",
            "claims[1].above: expected an id of the table's cells",
        ),
        (
            "along: [pair10-seed0, pair20-seed0]",
            "along: [pair10-seed0, pair20-seed1]",
            "claims[1].along: expected an id of the table's cells, got 'pair20-seed1'; did you mean 'pair20-seed0'?",
        ),
        (
            "train:\n",
            "why: {table3: {cl-help: x}}\ntrain:\n",
            "why.table3.cl-help: expected the id of a claim of table3, got 'cl-help'; did you mean 'cl-helps'?",
        ),
        (
            "train:\n",
            "why: {tabel3: {best: x}}\ntrain:\n",
            "why.tabel3: expected a table with claims, got 'tabel3'; did",
        ),
        (
            "{cifar10-public: CIFAR-10, draws",
            "{cifar10-pubic: CIFAR-10, draws",
            "tables.table1.heads: no run has 'cifar10-pubic'; did you mean 'cifar10-public'?",
        ),
        (
            "kind: gains, table: table2",
            "kind: gains, table: tabel2",
            "figures.gains.table: expected a table of kind repr",
        ),
    ],
)
def test_wrong_claims_are_refused(project, config_copy: Path, old: str, new: str, message: str) -> None:
    file = config_copy / "config/papers/fedhnl.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecError, match=re.escape(message)):
        Study(project(folder=config_copy), "fedhnl")
