"""What Snakemake is asked to make: for every name that a user may type the files that are missing, and for every
address of the store the plan behind it.

A finished folder of the store is never a target, nor an input, so nothing about it (times, records, inputs) can make
Snakemake run it again. Files with names of their own, in results/ and build/, are copies of the store or say what they
are made from; where they are not what the plan asks for, their input is a file newer than they are.
"""

from __future__ import annotations

import atexit
import contextlib
import csv
import functools
import io
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError, canonical_json, json_digest, open_atomic, sha256_file
from fednoise_core.report.runs.csv_files import resolve_user_file
from workflow_scripts import paths
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.provenance.checksums import read_sums
from workflow_scripts.provenance.step_code import ROOT
from workflow_scripts.study.plan import Plan
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.store import as_whole_numbers, drop_none, store_of
from workflow_scripts.study.study import Study

Ids = Mapping[str, str]

OUTPUTS = {  # kind of the store → how its step is told where to write
    "arrays": "--out {0}/arrays.npz --sums {0}",
    "labels": "--out {0}/labels.npz --sums {0}",
    "partitions": "--out {0}/partition.npz --sums {0}",
    "runs": "--out {0}",
    "tables": "--out-prefix {0}/table --sums {0}",
    "figures": "--out-prefix {0}/figure --sums {0}",
    "summaries": "--out {0}/metrics.json --headline {0}/headline.json --accuracy {0}/accuracy.csv "
    "--curves {0}/curves.csv --sums {0}",
    "pages": "--out {0}/report.html --sums {0}",
}
REPORT = "fednoise_core/report"  # has the templates of pages
LISTS = "work/lists"
OUTDATED = "work/outdated/"  # files that make Snakemake replace what is no longer what the plan asks for
COLUMNS = (
    *("dataset", "noise", "partition", "method", "seed", "label", "oracle_rate", "pooled"),
    *("dir", "labels", "partition_file", "arrays", "donor"),
)


class Targets:
    """Targets and plans of a project. quiet: nothing is printed about data sets that are absent. dry: whether this is a
    dry run, which leaves no file behind.
    """

    def __init__(self, project: Project, *, quiet: bool = True, dry: Callable[[], bool] = lambda: False) -> None:
        self.project, self.steps, self.quiet, self.dry = project, store_of(project).steps, quiet, dry
        self._plans: dict[str, Plan] = {}
        self._texts: dict[str, str] = {}  # of files that are written for commands

    @functools.cache  # noqa: B019 - targets live as long as the process
    def study(self, name: str) -> Study:
        """A study, checked, with all its plans known."""
        study = Study(self.project, name)
        if study.absent and not self.quiet:
            print(f"{self.project.names[name]}: {study.words_of_absence()}", file=sys.stderr)
        for plan in self.plans(study):
            self._plans[plan.folder] = plan
        return study

    def plan(self, folder: str) -> Plan:
        """The plan with this address. Raises SpecError if no study has it."""
        for name in [*self.project.studies, *self.project.names]:
            if folder in self._plans:
                break
            with contextlib.suppress(SpecError):  # another study may be broken, as long as nobody asks for it
                self.study(name)
        if folder not in self._plans:
            raise SpecError(f"{folder}: no study asks for it at scale {self.project.scale}")
        return self._plans[folder]

    def plans(self, study: Study) -> Iterable[Plan]:
        """All plans of a study."""
        for run in study.runs:
            yield from (run.files.run, *run.files.run.inputs)
        yield from self.tables(study).values()
        yield from self.figures(study).values()
        yield from (self.summary(study), self.page(study))

    # What a study shows

    @functools.cache  # noqa: B019
    def tables(self, study: Study) -> dict[str, Plan]:
        """Id of a table → its plan."""
        found = {}
        for name, spec in study.tables.items():
            code = self.steps.code(self.steps.report("table", tables=[spec["kind"]]))
            chosen, given = study.select(spec), {"name": name, "spec": as_whole_numbers(spec)}
            folder = f"store/tables/{spec['kind']}/{json_digest(given, code, _printed(spec), _row_digests(chosen))}"
            found[name] = Plan(folder, code, _runs(chosen), spec=given | {"runs": [run.row for run in chosen]})
        return found

    @functools.cache  # noqa: B019
    def figures(self, study: Study) -> dict[str, Plan]:
        """Id of a figure → its plan. A figure of settings shows each setting once, whatever methods there are."""
        found = {}
        for name, spec in study.figures.items():
            code = self.steps.code(self.steps.report("figure", [spec["kind"]]))
            chosen, given = study.select(spec), {"spec": as_whole_numbers(spec)}
            rows, inputs = [run.row for run in chosen], _runs(chosen)
            marks: list[Any] = _row_digests(chosen)
            if spec["kind"] in paths.ARTIFACTS:
                first: dict[tuple[str, str], PlannedRun] = {}
                for run in chosen:
                    first.setdefault((run.row["labels"], run.row["partition_file"]), run)
                rows = marks = [_without_run(run) for run in first.values()]
                inputs = _read(chosen)
                given["spec"].pop("methods", None)
            folder = f"store/figures/{spec['kind']}/{json_digest(given, code, _printed(spec), marks)}"
            found[name] = Plan(folder, code, inputs, spec=given | {"runs": rows})
        return found

    @functools.cache  # noqa: B019
    def summary(self, study: Study) -> Plan:
        """The few numbers of a study that git keeps, and the CSVs that `dvc plots` draws."""
        code = self.steps.code(self.steps.report("metrics"))
        folder = f"store/summaries/{json_digest(_row_digests(study.runs), code)}"
        return Plan(folder, code, _runs(study.runs), spec={"runs": [run.row for run in study.runs]})

    @functools.cache  # noqa: B019
    def page(self, study: Study) -> Plan:
        """The page of a study."""
        kinds = [spec["kind"] for spec in study.tables.values()]
        code = self.steps.code(self.steps.report("study_page", self.steps.setting_figures(), kinds))
        shown = {
            f"{key}/{name}.{suffix}": f"{plan.folder}/{key.removesuffix('s')}.{suffix}"
            for key, plans, suffixes in self._shown(study)
            for name, plan in plans.items()
            for suffix in suffixes
        }
        given = {"study": as_whole_numbers(study.described()), "shown": shown}
        plans = [*self.tables(study).values(), *self.figures(study).values()]
        order = [[list(given["study"][key]) for key in ("tables", "figures")], list(shown)]
        folder = f"store/pages/{json_digest(given, order, code, self.templates(REPORT), _row_digests(study.runs))}"
        rows = [run.row for run in study.runs]
        return Plan(folder, code, (*plans, *_runs(study.runs), *_read(study.runs)), spec=given | {"runs": rows})

    @staticmethod
    @functools.cache
    def templates(*folders: str) -> str:
        """Digest of the files that pages are filled from."""
        files = (path for folder in folders for end in ("html", "css", "js") for path in ROOT.glob(f"{folder}/*.{end}"))
        return json_digest({path.name: sha256_file(path) for path in files})

    def _shown(self, study: Study) -> list[tuple[str, dict[str, Plan], Sequence[str]]]:
        return [
            ("tables", self.tables(study), paths.TABLE_SUFFIXES),
            ("figures", self.figures(study), paths.FIGURE_SUFFIXES),
        ]

    # Targets

    def of_settings(self, name: str) -> list[str]:
        """Labels and partitions of a study that are missing, and the arrays that may be kept with them."""
        return _missing(plan for run in self.study(name).runs for plan in run.files.run.inputs)

    def of_data(self, name: str) -> list[str]:
        """Arrays and weights of a study that are missing."""
        runs = self.study(name).runs
        arrays = {
            plan.sums for run in runs for plan in (run.files.arrays, run.files.donor) if plan and not plan.finished
        }
        return sorted(arrays | {file for run in runs for file in run.files.run.files if not os.path.exists(file)})

    def of_runs(self, name: str) -> list[str]:
        """Runs of a study that are missing."""
        return _missing(run.files.run for run in self.study(name).runs)

    def of_store(self, name: str) -> list[str]:
        """All that a study has in the store, and that is missing."""
        return _missing(self.plans(self.study(name)))

    def of_study(self, name: str) -> list[str]:
        """All of a study."""
        study = self.study(name)
        pages = [run.labels_page for run in study.runs if study.data.get("labels")]
        return [
            *self.of_store(name),
            *paths.shown(study.root, study.tables, study.figures),
            *self.study_files(study),
            *pages,
        ]

    def of_all(self, files: Callable[[str], list[str]], names: Iterable[str]) -> list[str]:
        """Files of several studies, each once."""
        return list(dict.fromkeys(file for name in names for file in files(name)))

    def named(self) -> dict[str, Callable[[], list[str]]]:
        """Name that a user may type → its files: <study>, <study>_settings, <study>_runs, <study>_<table or figure>;
        every paper; all in the store, and arrays and weights, of the configured studies.
        """
        of, configured = self.of_all, self.project.studies
        found: dict[str, Callable[[], list[str]]] = {
            "papers": functools.partial(of, self.of_study, self.project.papers),
            "stored": functools.partial(of, self.of_store, configured),
            "stage_data": functools.partial(of, self.of_data, configured),
        }
        for name in self.project.names:
            found[name] = functools.partial(self.of_study, name)
            found[f"{name}_settings"] = functools.partial(self.of_settings, name)
            found[f"{name}_runs"] = functools.partial(self.of_runs, name)
        for name, file in self.project.names.items():
            for part in self._parts(file):
                found.setdefault(f"{name}_{part}", functools.partial(self.of_part, name, part))
        return found

    def _parts(self, file: str) -> list[str]:
        """Names of the tables and figures in a study's file, which is not checked, and may be broken, as long as nobody
        asks for it.
        """
        try:
            data = read_yaml(self.project.folder / file)
        except SpecError:
            return []
        found = [data.get(kind) for kind in ("figures", "tables")]
        return [name for parts in found if isinstance(parts, dict) for name in parts if isinstance(name, str)]

    def study_files(self, study: Study) -> list[str]:
        """Files of a study besides its tables and figures."""
        return [f"{study.root}/{file}" for file in (*paths.STUDY_FILES, paths.INDEX)]

    def of_part(self, name: str, part: str) -> list[str]:
        """Files of a table or figure that is asked for by its own name. One of data that is not here is an error then;
        as a part of a whole paper it says so in its cells.
        """
        study = self.study(name)
        study.check_present(part)
        return paths.shown(study.root, {part} & study.tables.keys(), {part} & study.figures.keys())

    # What rules ask

    def copies(self, root: str, key: str, name: str = "") -> dict[str, str]:
        """File in results/ → the file it is a copy of: of a table, a figure, or the rest of a study (key "study")."""
        study = self.study(self.project.roots[root])
        if key == "study":
            page, summary = self.page(study), self.summary(study)
            of = {file: page if source == "report.html" else summary for file, source in paths.STUDY_FILES.items()}
            found = {file: f"{plan.folder}/{paths.STUDY_FILES[file]}" for file, plan in of.items()}
            index = self._written(_csv([run.row for run in study.runs]), "csv")
            return {f"{study.root}/{file}": source for file, source in found.items()} | {
                f"{study.root}/{paths.INDEX}": index
            }
        plans, suffixes = {key: (plans, ends) for key, plans, ends in self._shown(study)}[key]
        if name not in plans:
            raise SpecError(
                f"{self.project.names[study.name]}: {key}: none is named {name!r}, or it has no run at scale "
                f"{self.project.scale}"
            )
        one = key.removesuffix("s")
        return {f"{study.root}/{key}/{name}.{end}": f"{plans[name].folder}/{one}.{end}" for end in suffixes}

    def before_copies(self, root: str, key: str, name: str = "") -> list[str]:
        """What must be made before copies are, and if one is not a copy of what is planned, a file newer than it."""
        copies = self.copies(root, key, name)
        folders = dict.fromkeys(os.path.dirname(source) for source in copies.values() if source.startswith("store/"))
        missing = [plan.sums for plan in map(self.plan, folders) if not plan.finished]
        sums = {f"{folder}/{name}": value for folder in folders for name, value in read_sums(folder).items()}
        sums |= {path: sha256(text.encode()).hexdigest() for path, text in self._texts.items()}
        if all(os.path.isfile(file) and sha256_file(file) == sums.get(source) for file, source in copies.items()):
            return missing
        return [*missing, _newer("/".join(filter(None, (root, key, name))), copies)]

    def closing(self, root: str) -> list[str]:
        """What won in a study: its summary's log says it, where the summary was made here."""
        log = Path("logs/summary", os.path.basename(self.summary(self.study(self.project.roots[root])).folder) + ".log")
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [f"results/{root}:", *(f"  {line}" for line in lines), f"  page: results/{root}/report.html"]

    def copying(self, root: str, key: str, name: str = "") -> str:
        """The command that makes copies."""
        copies = self.copies(root, key, name).items()
        return " && ".join(
            f"cp {shlex.quote(source)} {shlex.quote(file + '~')} && mv {shlex.quote(file + '~')} {shlex.quote(file)}"
            for file, source in copies
        )

    def title(self, root: str, key: str, name: str) -> str:
        """The title of a table or figure."""
        found = getattr(self.study(self.project.roots[root]), key)
        return str(found.get(name, {}).get("title") or name)

    def command(self, folder: str) -> str:
        """Arguments of the step that makes an address. The lists of runs that tables, figures and pages show are too
        long for a command line, and are written to files here.
        """
        plan = self.plan(folder)
        words = ["--code", plan.code, *plan.arguments, *OUTPUTS[folder.split("/")[1]].format(folder).split()]
        if plan.spec is not None:
            runs = plan.spec["runs"]
            words += ["--runs-list", self._written(canonical_json(runs), "json")]
            for name in ("spec", "study", "shown"):
                words += [f"--{name}", self._written(_in_order(plan.spec[name]), "json")] if name in plan.spec else []
            words += ["--name", plan.spec["name"]] if "name" in plan.spec else []
        return shlex.join(words)

    @staticmethod
    def remove_lists() -> None:
        """Remove what was written for the commands of this workflow; another one writes what it needs."""
        for folder in (LISTS, OUTDATED):
            shutil.rmtree(folder, ignore_errors=True)

    def _written(self, text: str, ending: str) -> str:
        """The path of a file with this text; a dry run does not write it."""
        path = Path(LISTS, f"{json_digest(text)}.{ending}")
        self._texts[path.as_posix()] = text
        if not path.exists() and not self.dry():
            with open_atomic(path) as file:
                file.write(text)
        return path.as_posix()

    # Pages in build/, one for a run or a setting

    def labels_page(self, **ids: str) -> Plan:
        """The page of a run's suspect labels."""
        study = self.study(self.project.roots[ids["root"]])
        run = study.run(ids["dataset"], ids["noise"], ids["partition"], ids["method"], int(ids["seed"]))
        words = [run.dataset, run.noise, run.partition, f"{run.label}, seed {run.seed}"]
        files = [word for key in ("arrays", "labels", "donor") if key in run.row for word in (f"--{key}", run.row[key])]
        arguments = [*files, "--run", run.folder, "--title", " · ".join(words)]
        made = self.steps.code(["label_review/make_labels.py"]), self.templates(REPORT, "label_review")
        inputs = run.files.run, *run.files.run.inputs
        return self._built(paths.LABELS_PAGE, "label_review.make_labels", made, arguments, inputs, ids)

    def setting_page(self, **ids: str) -> Plan:
        """The page of a setting, in the grid or not."""
        if ids["root"] not in self.project.roots:
            raise SpecError(f"results/{ids['root']}: no study has this folder at scale {self.project.scale}")
        study = self.study(self.project.roots[ids["root"]])
        names = ids["dataset"], ids["noise"], ids["partition"]
        inputs = arrays, labels, split = study.setting(*names, int(ids["seed"]))
        donor = store_of(self.project).donor(study.noise(names[1]))
        self._plans |= {plan.folder: plan for plan in drop_none(*inputs, donor)}
        arguments = ["--arrays", f"{arrays.folder}/{paths.ARRAYS}", "--labels", f"{labels.folder}/{paths.LABELS}"]
        arguments += ["--partition", f"{split.folder}/{paths.PARTITION}", "--ids", "/".join(names)]
        arguments += ["--donor", f"{donor.folder}/{paths.ARRAYS}"] if donor else []
        code = self.steps.code(self.steps.report("setting_page", self.steps.setting_figures()))
        made = code, self.templates(REPORT)
        needed = drop_none(*inputs, donor)
        return self._built(paths.SETTING_PAGE, "workflow_scripts.steps.setting_page", made, arguments, needed, ids)

    def _built(
        self, path: str, module: str, made: tuple[str, str], words: list[str], inputs: tuple[Plan, ...], ids: Ids
    ) -> Plan:
        """made: hash of the code, digest of the templates."""
        code, page = made[0], path.format(**ids)
        mark = json_digest(words, *made)
        arguments = ("python", "-m", module, "--code", code, *words, "--out", page)
        return Plan(f"{page}/{mark}", code, inputs, arguments)

    def before_page(self, plan: Plan) -> list[str]:
        """What must be made before a page in build/, and if it is not the planned page, a file newer than it."""
        page, mark = os.path.split(plan.folder)
        made = Path(f"{page}.plan")
        current = made.is_file() and made.read_text(encoding="utf-8").strip() == mark
        return plan.missing() if current else [*plan.missing(), _newer(page, [page])]

    def paging(self, plan: Plan) -> str:
        """The command that makes a page in build/, and beside it the mark of what it is made from."""
        page, mark = os.path.split(plan.folder)
        return f"{shlex.join(plan.arguments)} && echo {mark} > {page}.plan"


def _missing(plans: Iterable[Plan]) -> list[str]:
    """What is to be made in the store of these plans, each once."""
    return list(dict.fromkeys(one.sums for one in plans if one.folder.startswith("store/") and not one.finished))


def _runs(runs: Iterable[PlannedRun]) -> tuple[Plan, ...]:
    """The runs' own plans, each once."""
    return tuple({run.folder: run.files.run for run in runs}.values())


def _read(runs: Iterable[PlannedRun]) -> tuple[Plan, ...]:
    """Plans of the arrays, labels and partitions of runs, each once."""
    return tuple({plan.folder: plan for run in runs for plan in run.files.run.inputs}.values())


def _row_digests(runs: Iterable[PlannedRun]) -> list[str]:
    return [run.row_digest for run in runs]


def _printed(spec: Mapping[str, Any]) -> list[str]:
    """Digests of the files of a paper's numbers that a table or figure is made from."""
    return [sha256_file(resolve_user_file(file)) for file in paths.printed(spec) if resolve_user_file(file).is_file()]


def _without_run(run: PlannedRun) -> dict[str, Any]:
    """A run's line for figures of settings, which show nothing of its method."""
    unused = ("label", "oracle_rate", "pooled")
    return {**{key: value for key, value in run.row.items() if key not in unused}, "dir": "", "method": ""}


def _newer(name: str, files: Iterable[str]) -> str:
    """The path of a file newer than these, so that Snakemake makes them again. It goes when this process ends, and no
    other process knows it: a dry run beside a run takes nothing from it.
    """
    own = Path(OUTDATED, str(os.getpid()))
    if not own.exists():
        atexit.register(shutil.rmtree, own, ignore_errors=True)
    path = own / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(time.time_ns()))  # never the same: Snakemake passes over an input whose checksum it knows
    newest = max([path.stat().st_mtime, *(os.path.getmtime(file) + 1 for file in files if os.path.exists(file))])
    os.utime(path, (newest, newest))
    return path.as_posix()


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _in_order(value: Any, depth: int = 2) -> str:
    """JSON whose first levels keep their order: a page shows tables and figures as the study lists them."""
    if depth and isinstance(value, Mapping):
        return (
            "{" + ",".join(f"{canonical_json(key)}:{_in_order(item, depth - 1)}" for key, item in value.items()) + "}"
        )
    return canonical_json(value)
