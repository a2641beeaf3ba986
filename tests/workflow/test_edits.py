"""Exactly the jobs that depend on an edit run again, counted from `snakemake -n`."""

import contextlib
import shutil
from pathlib import Path

import pytest
from toy_workflow import Workflow

pytestmark = pytest.mark.workflow

TOY, CATALOGUE, DATASETS = "config/studies/toy.yaml", "config/catalogue.yaml", "config/datasets.yaml"
CORE, STEPS = "fednoise_core/", "workflow_scripts/steps/"
FEDCORR, ENGINE = CORE + "methods/fedcorr.py", CORE + "engine/loop.py"
CURVES, HISTOGRAM = (
    "workflow_scripts/report/figures/results/curves.py",
    "workflow_scripts/report/figures/settings/histogram.py",
)
NEW_NAME = ("\n\nfrom ", "\n\nNEVER_USED = 1\nfrom ")
INIT = "    def init_state(self"
SCHEMES = CORE + "partition/schemes.py"
BY_OWNER = """\
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, C)))
"""
GRID = "methods: [fedavg, feddpcont, fedcorr]"
SYM40 = "sym40: {kind: symmetric, rate: 0.4}"
RANDOM20 = "random20: {kind: random, rate: 0.2}"
OPEN = "open: {kind: openset, clients: 4, mode: uniform}"
TABLE = "  main: {kind: accuracy}\n"

PAGE = {"study_page": 1}
NUMBERS = {"metrics": 1, **PAGE}
ONE_RUN = {"train": 1, "table": 1, "figure": 1, **NUMBERS}  # one run of four; the other table and figure do not show it
SHOWN = {"table": 2, "figure": 1, **NUMBERS}
ALL_RUNS = {"train": 4, **SHOWN}
NEW_SETTING = {"train": 1, "table": 2, "figure": 1, **NUMBERS}

Edit = tuple[str, str, str]  # file, old text, new text
EDITS: dict[str, tuple[list[Edit], dict[str, int]]] = {
    # code
    "a method's code": ([(FEDCORR, INIT, f"    never_used = 1\n\n{INIT}")], ONE_RUN),
    "the engine's code": ([(ENGINE, *NEW_NAME)], ALL_RUNS),
    "code of training's own step": (
        [(STEPS + "training_run.py", "key = json_digest(spec,", "key = json_digest(None, spec,")],
        ALL_RUNS,
    ),
    "a net's code": ([(CORE + "nets/small.py", *NEW_NAME)], ALL_RUNS),
    "a kind of noise": ([(CORE + "noise/models.py", *NEW_NAME)], {"noise": 2, "partition": 1, **ALL_RUNS, "figure": 2}),
    "the code of partitions": ([(SCHEMES, *NEW_NAME)], {"partition": 2, **ALL_RUNS, "figure": 2}),
    "the code of a label release": ([(CORE + "ops/label_dp.py", *NEW_NAME)], ALL_RUNS),
    "the name of a kind of noise": (
        [(file, "mix-ups vary by class", "unequal") for file in (CORE + "noise/models.py", "config/schema/noise.yaml")],
        {"noise": 2, "partition": 1, **ALL_RUNS, "figure": 2},
    ),
    "another kind of noise": ([(CORE + "noise/asymmetric.py", *NEW_NAME)], {}),
    "the code of a kind of figure": ([(CURVES, *NEW_NAME)], {"figure": 1, **PAGE}),
    "the code of a picture of settings": ([(HISTOGRAM, *NEW_NAME)], {"figure": 1, **PAGE}),
    "another kind of figure": ([("workflow_scripts/report/figures/results/cost.py", *NEW_NAME)], {}),
    "what all figures share": ([("workflow_scripts/report/figures/style.py", *NEW_NAME)], {"figure": 2, **PAGE}),
    "code of tables": ([("workflow_scripts/report/tables/registry.py", *NEW_NAME)], {"table": 2, **PAGE}),
    "another kind of table": ([("workflow_scripts/report/tables/cost.py", *NEW_NAME)], {}),
    "code of pages": ([("workflow_scripts/report/pages/study_page.py", *NEW_NAME)], PAGE),
    "a template": ([("workflow_scripts/report/pages/assets/study.html", "<h3>Code</h3>", "<h3>The code</h3>")], PAGE),
    "code of the command line": ([(STEPS + "train.py", "interrupted before the first round", "so long")], {}),
    "code of the planner": ([(f"workflow_scripts/study/{name}.py", *NEW_NAME) for name in ("targets", "grid")], {}),
    "code of the page of suspect labels": ([("workflow_scripts/steps/labels_page.py", *NEW_NAME)], {}),
    "a variable's name": (
        [(SCHEMES, BY_OWNER, BY_OWNER.replace("order", "ranks"))],
        {"partition": 2, **ALL_RUNS, "figure": 2},
    ),
    "an annotation": (
        [(SCHEMES, "def by_owner(owner: np.ndarray", "def by_owner(owner: object")],
        {"partition": 2, **ALL_RUNS, "figure": 2},
    ),
    "a help text": (
        [(STEPS + "noise.py", 'help="partition artifact', 'help="other words')],
        {"noise": 2, "partition": 1, **ALL_RUNS, "figure": 2},
    ),
    "how partitions are kept": (  # labels of each kind of noise are made again, since some kinds read the partition
        [(CORE + "data/partition.py", "import numpy as np\n", "import numpy as np\n\nNEVER_USED = 1\n")],
        {"noise": 2, "partition": 2, **ALL_RUNS, "figure": 2},
    ),
    "an error's text": ([(CORE + "noise/labels.py", "its images are", "it has images of")], {}),
    "a comment": ([(FEDCORR, INIT, f"    # a comment\n{INIT}")], {}),
    "a docstring": ([(FEDCORR, '"""', '"""Another docstring. ')], {}),
    "the version": ([(CORE + "version.py", '__version__ = "', '__version__ = "9.')], {}),
    # settings
    "a method's setting": ([(TOY, "beta: 1.0", "beta: 0.5")], ONE_RUN),
    "a training setting": ([(TOY, "rounds: 2", "rounds: 3")], ALL_RUNS),
    "a method's own training": ([(TOY, "beta: 1.0}", "beta: 1.0, train: {lr: 0.02}}")], ONE_RUN),
    "a noise's kind": ([(CATALOGUE, RANDOM20, RANDOM20.replace("random,", "pair,"))], {"noise": 1, **NEW_SETTING}),
    "a noise under a partition": (
        [(CATALOGUE, SYM40, SYM40.replace("0.4", "0.3"))],
        {"noise": 1, "partition": 1, "train": 3, "table": 1, "figure": 2, **NUMBERS},
    ),
    "a partition's clients": (
        [(TOY, "clients: 4, mode", "clients: 5, mode")],
        {"partition": 1, "train": 3, "table": 1, "figure": 2, **NUMBERS},
    ),
    "the data set": (
        [(DATASETS, "public: 250}", "public: 250, split_seed: 1}")],
        {"download": 1, "noise": 2, "partition": 2, **ALL_RUNS, "figure": 2},
    ),
    "one seed more": ([(TOY, "seeds: [0]", "seeds: [0, 1]")], {"noise": 2, "partition": 2, **ALL_RUNS, "figure": 2}),
    "one method less": ([(TOY, GRID, "methods: [fedavg, feddpcont]")], {"table": 1, "figure": 1, **NUMBERS}),
    "a table's setting": ([(TOY, TABLE, "  main: {kind: accuracy, metric: last}\n")], {"table": 1, **PAGE}),
    "a figure's setting": (
        [(TOY, "curves: {kind: curves}", "curves: {kind: curves, x: work}")],
        {"figure": 1, **PAGE},
    ),
    "a new table": ([(TOY, TABLE, f"{TABLE}  more: {{kind: accuracy, metric: last}}\n")], {"table": 1, **PAGE}),
    # edits that train no run again
    "a study's title": ([(TOY, "title: Toy", "title: Another title")], PAGE),
    "a method's label": ([(TOY, "beta: 1.0}", "beta: 1.0, label: Ours}")], {"table": 1, "figure": 1, **NUMBERS}),
    "a method's id": (
        [(TOY, "feddpcont:", "ours:"), (TOY, GRID, GRID.replace("feddpcont", "ours"))],
        {"table": 1, "figure": 1, **NUMBERS},
    ),
    "a partition's id": (
        [(TOY, OPEN, OPEN.replace("open:", "odd:")), (TOY, "partitions: [open]", "partitions: [odd]")],
        {"table": 1, "figure": 2, **NUMBERS},
    ),
    "a noise's id": (
        [
            (CATALOGUE, RANDOM20, f"fifth: {{kind: random, rate: 0.2}}\n  {RANDOM20}"),
            (TOY, "[random20], part", "[fifth], part"),
            (TOY, "noises: [random20]", "noises: [fifth]"),
        ],
        {"table": 2, "figure": 1, **NUMBERS},
    ),
    "the order of methods": (
        [(TOY, GRID, "methods: [feddpcont, fedcorr, fedavg]")],
        {"table": 1, "figure": 1, **NUMBERS},
    ),
    "the order of tables": (
        [(TOY, TABLE, ""), (TOY, "noises: [random20]}\nfig", f"noises: [random20]}}\n{TABLE}fig")],
        PAGE,
    ),
    "an unused definition": ([(CATALOGUE, "rate: 0.4}", "rate: 0.4}\n  new40: {kind: random, rate: 0.4}")], {}),
    "comments in a study": ([(TOY, "title: Toy", "# what it is\ntitle: Toy")], {}),
    "a number written otherwise": ([(TOY, "beta: 1.0", "beta: 1")], {}),
    "defaults written out": ([(TOY, "{net: mlp,", "{net: {name: mlp, hidden: 64}, momentum: 0,")], PAGE),
    "the layout of a rule": (
        [("rules/train.smk", '"OMP_NUM_THREADS={threads} python', '"OMP_NUM_THREADS={threads}  python')],
        {},
    ),
    "a caption": ([("captions/figure.rst", "Figure", "The figure")], {}),
    "a rule's message": ([("rules/noise.smk", '"labels of', '"noisy labels of')], {}),
    "a rule's memory": ([("rules/train.smk", "job_resources(4000,", "job_resources(8000,")], {}),
}


@pytest.fixture(scope="module")
def project(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """One copy for all edits: each is undone before the next."""
    folder = tmp_path_factory.mktemp("edits") / "copy"
    shutil.copytree(finished, folder, symlinks=True)
    return Workflow(folder)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_makes_what_depends_on_it(project: Workflow, name: str) -> None:
    edits, expected = EDITS[name]
    with contextlib.ExitStack() as stack:
        for edit in edits:
            stack.enter_context(project.edited(*edit))
        assert project.stale() == expected
