"""Targets, inputs and commands for Snakemake.

For each name that a user may type, this module lists the missing files. For each address of the store, it finds the
plan. A finished folder of the store is never a target, and the times of its files are ignored, so Snakemake never makes
it again. Files in results/ are copies of the store. Pages in build/ have a mark that identifies their plan. If such a
file does not match the plan, it gets an input file with a newer time, so that Snakemake makes it again.
"""

import atexit
import contextlib
import csv
import io
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from fednoise_core.index import SHOWN
from fednoise_core.io import SpecError, canonical_json, check_address, json_digest, open_atomic, sha256_file
from fednoise_core.settings.declare import did_you_mean
from workflow_scripts import paths
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.provenance.checksums import read_sums
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.study import output_plans
from workflow_scripts.study.output_plans import LABEL_TEMPLATES, TEMPLATES, template_digest
from workflow_scripts.study.plan import Plan
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.store import drop_none, hash_step, store_of
from workflow_scripts.study.study import Study

Ids = Mapping[str, str]

LISTS = "work/lists"
OUTDATED = "work/outdated/"  # newer files, which make Snakemake replace files that differ from the plan
COLUMNS = (
    *("dataset", "noise", "partition", "method", "seed", *SHOWN),
    *("dir", "labels", "partition_file", "arrays", "donor"),
)


class NamedTarget(NamedTuple):
    """A name that a user may type.

    Attributes:
        description: Text for `snakemake --list`.
        list_files: Lists the files that are missing.
    """

    description: str
    list_files: Callable[[], list[str]]


class Targets:
    """Targets and plans of a project.

    Attributes:
        quiet: Print nothing about missing data sets.
        dry: Returns True in a dry run, which writes no files.
    """

    def __init__(self, project: Project, *, quiet: bool = True, dry: Callable[[], bool] = lambda: False) -> None:
        self.project, self.quiet, self.dry = project, quiet, dry
        self._plans: dict[str, Plan] = {}
        self._studies: dict[str, Study] = {}
        self._texts: dict[str, str] = {}  # path → text of files written for commands

    def load_study(self, name: str) -> Study:
        """Load and check a study, and register all of its plans."""
        if name in self._studies:
            return self._studies[name]
        study = Study(self.project, name)
        if study.absent and not self.quiet:
            print(f"{self.project.study_files[name]}: {study.missing_data_message()}", file=sys.stderr)
        for plan in self.study_plans(study):
            self._plans[plan.folder] = plan
        return self._studies.setdefault(name, study)

    def find_runs(self, sums: Iterable[str]) -> list[PlannedRun]:
        """Find the runs of the loaded studies by their files of checksums."""
        files = set(sums)
        runs = (run for study in self._studies.values() for run in study.runs)
        return list({run.folder: run for run in runs if run.plan.sums_file in files}.values())

    def find_plan(self, folder: str) -> Plan:
        """Find the plan with an address.

        Args:
            folder: The address.

        Raises:
            SpecError: No study has this address.
        """
        for name in [*self.project.studies, *self.project.study_files]:
            if folder in self._plans:
                break
            with contextlib.suppress(SpecError):  # errors in studies that are not requested are ignored
                self.load_study(name)
        if folder not in self._plans:
            raise SpecError(f"{folder}: no study asks for it at scale {self.project.scale}")
        return self._plans[folder]

    def _study_in(self, root: str) -> Study:
        """The study whose results folder is named `root`."""
        if root not in self.project.studies_by_folder:
            raise SpecError(f"results/{root}: no study has this folder at scale {self.project.scale}")
        return self.load_study(self.project.studies_by_folder[root])

    def study_plans(self, study: Study) -> Iterable[Plan]:
        """Yield all plans of a study."""
        for run in study.runs:
            yield from (run.plan, *run.plan.inputs)
        yield from output_plans.plan_tables(study).values()
        yield from output_plans.plan_figures(study).values()
        yield from (output_plans.plan_summary(study), output_plans.plan_page(study))

    # Targets

    def _missing_settings(self, name: str) -> list[str]:
        """List the missing labels and partitions of a study, and its missing arrays in the store."""
        return _missing_sums(plan for run in self.load_study(name).runs for plan in run.plan.inputs)

    def _missing_data(self, name: str) -> list[str]:
        """List the missing arrays and weights of a study."""
        inputs = [plan for run in self.load_study(name).runs for plan in (run.plan, *run.plan.inputs)]
        arrays = {plan.sums_file for plan in inputs if plan.folder.split("/")[1] == "arrays" and not plan.is_finished}
        return sorted(arrays | {file for plan in inputs for file in plan.files if not os.path.exists(file)})

    def missing_runs(self, name: str) -> list[str]:
        """List the missing runs of a study."""
        return _missing_sums(run.plan for run in self.load_study(name).runs)

    def _missing_in_store(self, name: str) -> list[str]:
        """List everything in the store that a study needs and that is missing."""
        return _missing_sums(self.study_plans(self.load_study(name)))

    def study_targets(self, name: str) -> list[str]:
        """List all missing files of a study in the store, and its files in results/ and build/.

        Args:
            name: The study's name.
        """
        study = self.load_study(name)
        return [
            *self._missing_in_store(name),
            *self.list_copies(study),
            f"{study.root}/{paths.INDEX}",
            *_label_pages(study),
        ]

    def combine_targets(self, files: Callable[[str], list[str]], names: Iterable[str]) -> list[str]:
        """Combine the files of several studies, each once.

        Args:
            files: Lists the files of one study.
            names: The studies.
        """
        return list(dict.fromkeys(file for name in names for file in files(name)))

    def named_targets(self, studies: Iterable[str]) -> dict[str, NamedTarget]:
        """List the names that a user may type.

        They are <study>, <study>_settings, <study>_runs and <study>_<table or figure>, and `papers`. `stored` is
        everything of the configured studies in the store, and `stage_data` is their arrays and weights.

        Args:
            studies: Names of studies.
        """
        combine, configured = self.combine_targets, self.project.studies
        in_store = "Everything that the configured studies keep in the store."
        in_data = "Arrays and weights of the configured studies."
        targets = {
            "papers": NamedTarget("All papers.", partial(combine, self.study_targets, self.project.paper_names)),
            "stored": NamedTarget(in_store, partial(combine, self._missing_in_store, configured)),
            "stage_data": NamedTarget(in_data, partial(combine, self._missing_data, configured)),
        }
        contents = {name: self._read_unchecked(self.project.study_files[name]) for name in studies}
        for name, data in contents.items():
            title = str(data.get("title", name))
            targets[name] = NamedTarget(title, partial(self.study_targets, name))
            targets[f"{name}_settings"] = NamedTarget(
                f"Labels and clients of {name}.", partial(self._missing_settings, name)
            )
            targets[f"{name}_runs"] = NamedTarget(f"Runs of {name}.", partial(self.missing_runs, name))
        for name, data in contents.items():
            sections = [data.get(key) for key in ("figures", "tables")]
            for part, spec in (item for section in sections if isinstance(section, dict) for item in section.items()):
                heading = (spec.get("title") if isinstance(spec, dict) else None) or f"{part} of {name}"
                target = NamedTarget(str(heading), partial(self._output_targets, name, part))
                targets.setdefault(f"{name}_{part}", target)
        return targets

    def refuse_target(self, name: str) -> NoReturn:
        """Refuse a name that is not a target.

        Args:
            name: The name that the user typed.

        Raises:
            SpecError: Always. The message names the nearest target or the studies.
        """
        if (file := self.project.folder / f"config/studies/{name}.yml").exists():
            raise SpecError(f"config/studies/{file.name}: rename it to {name}.yaml")
        targets, studies = self.named_targets(self.project.study_files), ", ".join(self.project.study_files)
        hint = did_you_mean(name, targets, or_all=False) or f"; known: {studies}, papers, and <study>_<table or figure>"
        raise SpecError(f"unknown target {name!r}{hint}")

    def _read_unchecked(self, file: str) -> Mapping[str, Any]:
        """Read a study's file. A file with errors counts as empty, since the study may not be requested."""
        try:
            return read_yaml(self.project.folder / file)
        except SpecError:
            return {}

    def list_copies(self, study: Study) -> dict[str, str]:
        """Map each copy of a study in results/ to its source in the store."""
        copies = self._page_sources(study) | output_plans.list_shown(study)
        return {f"{study.root}/{file}": source for file, source in copies.items()}

    def _page_sources(self, study: Study) -> dict[str, str]:
        """Map each file of a study's page and numbers to its source in the store."""
        page, summary = output_plans.plan_page(study).folder, output_plans.plan_summary(study).folder
        return {
            file: f"{page if source == 'report.html' else summary}/{source}"
            for file, source in paths.STUDY_FILES.items()
        }

    def _output_targets(self, name: str, part: str) -> list[str]:
        """List the files of a table or figure that the user requests by its name.

        Missing data are then an error. In a request for a whole paper they are only noted in the cells of its tables.
        """
        study = self.load_study(name)
        study.check_present(part)
        return [f"{study.root}/{file}" for file in output_plans.list_shown(study, part)]

    # What rules ask

    def _copy_sources(self, root: str, key: str, name: str = "") -> dict[str, str]:
        """Map the files in results/ of a table, a figure, or the rest of a study (key "study") to their sources."""
        study = self._study_in(root)
        if key == "study":
            index = self._write_list(_csv_text([run.row for run in study.runs]), "csv")
            copies = {paths.INDEX: index, **self._page_sources(study)}
        else:
            outputs = output_plans.list_shown(study, name)
            copies = {file: source for file, source in outputs.items() if file.startswith(key)}
        if not copies:
            raise SpecError(
                f"{self.project.study_files[study.name]}: {key}: none is named {name!r}, or it has no run at scale "
                f"{self.project.scale}"
            )
        return {f"{study.root}/{file}": source for file, source in copies.items()}

    def copy_inputs(self, root: str, key: str, name: str = "") -> list[str]:
        """List the files that must be made before files are copied to results/.

        Args:
            root: The study's results folder, without "results/".
            key: "tables", "figures", or "study" for all other files.
            name: The id of the table or figure.

        Returns:
            Files of the store. If a copy differs from its planned source, also a file newer than the copy.
        """
        copies = self._copy_sources(root, key, name)
        folders = dict.fromkeys(os.path.dirname(source) for source in copies.values() if source.startswith("store/"))
        missing = [plan.sums_file for plan in map(self.find_plan, folders) if not plan.is_finished]
        sums = {f"{folder}/{name}": value for folder in folders for name, value in read_sums(folder).items()}
        sums |= {path: sha256(text.encode()).hexdigest() for path, text in self._texts.items()}
        if all(os.path.isfile(file) and sha256_file(file) == sums.get(source) for file, source in copies.items()):
            return missing
        return [*missing, _newer_file("/".join(filter(None, (root, key, name))), copies)]

    def summary_lines(self, root: str) -> list[str]:
        """List the results in the log of the step `metrics`, if this store has the log, and the paths of the pages."""
        study = self._study_in(root)
        log = Path(f"logs/metrics/{output_plans.plan_summary(study).digest}.log")
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        pages = [f"results/{root}/report.html", *_label_pages(study)]
        return [f"results/{root}:", *(f"  {line}" for line in lines), *(f"  page: {page}" for page in pages)]

    def copy_command(self, root: str, key: str, name: str = "") -> str:
        """The shell command that copies files to results/, for the arguments of `copy_inputs`."""
        copies = self._copy_sources(root, key, name).items()
        for folder in {os.path.dirname(source) for _, source in copies}:
            check_address(folder)
        return " && ".join(
            f"cp {shlex.quote(source)} {shlex.quote(file + '~')} && mv {shlex.quote(file + '~')} {shlex.quote(file)}"
            for file, source in copies
        )

    def output_title(self, root: str, key: str, name: str) -> str:
        """Find the title of a table or figure, for the arguments of `copy_inputs`."""
        specs = getattr(self._study_in(root), key)
        return str(specs.get(name, {}).get("title") or name)

    def step_settings(self, folder: str) -> str:
        """Write the arguments of the step with an address, without the files that it reads and writes.

        The runs of tables, figures and pages are written to files, because the lists are too long for a command line.
        """
        plan = self.find_plan(folder)
        arguments = ["--code", plan.code, *plan.arguments]
        if plan.spec is not None:
            runs = plan.spec["runs"]
            arguments += ["--runs-list", self._write_list(canonical_json(runs), "json")]
            for name in ("spec", "study", "shown"):
                if name in plan.spec:
                    arguments += [f"--{name}", self._write_list(_json_preserving_order(plan.spec[name]), "json")]
            for name in ("name", "place"):
                arguments += [f"--{name}", plan.spec[name]] if name in plan.spec else []
        return shlex.join(arguments)

    def remove_lists(self) -> None:
        """Remove the lists of runs that this process wrote for commands.

        If another process needs the same list, it writes the list again at the start of the job.
        """
        for path in self._texts:
            Path(path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another process still has lists
            Path(LISTS).rmdir()

    def _write_list(self, text: str, ending: str) -> str:
        """Write a file with this text, except in a dry run, and return its path."""
        path = Path(LISTS, f"{json_digest(text)}.{ending}")
        self._texts[path.as_posix()] = text
        if not path.exists() and not self.dry():
            with open_atomic(path) as file:
                file.write(text)
        return path.as_posix()

    # Pages in build/, one for a run or a setting

    def labels_page(self, **ids: str) -> Plan:
        """Plan the page of a run's suspect labels.

        Args:
            ids: The wildcards of `paths.LABELS_PAGE`.
        """
        study = self._study_in(ids["root"])
        run = study.find_run(ids["dataset"], ids["noise"], ids["partition"], ids["method"], int(ids["seed"]))
        options, inputs = ["--run", run.folder, "--title", run.labels_title], (run.plan, *run.plan.inputs)
        page, files = paths.LABELS_PAGE.format(**ids), ("arrays", "labels", "donor")
        return self._plan_built_page("labels_page", page, files, options, inputs, LABEL_TEMPLATES)

    def setting_page(self, **ids: str) -> Plan:
        """Plan the page of a setting, in the grid or not.

        Args:
            ids: The wildcards of `paths.SETTING_PAGE`.
        """
        study = self._study_in(ids["root"])
        names = ids["dataset"], ids["noise"], ids["partition"]
        donor = store_of(study.project).plan_donor(study.normalize_definition("noises", names[1]))
        inputs = drop_none(*study.plan_setting(*names, int(ids["seed"])), donor)
        self._plans |= {plan.folder: plan for plan in inputs}
        page, files = paths.SETTING_PAGE.format(**ids), ("arrays", "labels", "partition", "donor")
        return self._plan_built_page(
            "setting_page", page, files, ["--ids", "/".join(names)], inputs, TEMPLATES, figure=tuple(SETTING_FIGURES)
        )

    def _plan_built_page(
        self,
        step: str,
        page: str,
        files: Iterable[str],
        options: list[str],
        inputs: tuple[Plan, ...],
        templates: tuple[str, ...],
        **names: tuple[str, ...],
    ) -> Plan:
        """Plan a page in build/. files: inputs as in `Plan.input_files`. names: as in `StepCode.step_entries`."""
        code, reads = hash_step(step, **names), Plan("", "", inputs)
        options = [
            *options,
            *(word for name in files for file in reads.input_files(name) for word in (f"--{name}", file)),
        ]
        mark = json_digest(options, code, template_digest(*templates))
        arguments = ("python", "-m", "workflow_scripts.steps", step, "--code", code, *options, "--out", page)
        return Plan(f"{page}/{mark}", code, inputs, arguments)

    def page_inputs(self, plan: Plan) -> list[str]:
        """List the files that must be made before a page in build/.

        Args:
            plan: The plan of the page.

        Returns:
            Files of the store. If the page differs from the planned one, also a file newer than the page.
        """
        page, mark = os.path.split(plan.folder)
        plan_file = Path(f"{page}.plan")
        current = plan_file.is_file() and plan_file.read_text(encoding="utf-8").strip() == mark
        return plan.missing_files() if current else [*plan.missing_files(), _newer_file(page, [page])]

    def page_command(self, plan: Plan) -> str:
        """Return the shell command that makes a page in build/ and a .plan file, which identifies the page's plan."""
        page, mark = os.path.split(plan.folder)
        return f"{shlex.join(plan.arguments)} && echo {mark} > {page}.plan"


def _missing_sums(plans: Iterable[Plan]) -> list[str]:
    """List the checksum files of these plans that are missing in the store, each once.

    Inputs of other missing plans are left out, since Snakemake makes them anyway.
    """
    missing = {plan.folder: plan for plan in plans if plan.folder.startswith("store/") and not plan.is_finished}
    inputs = {plan.folder for user in missing.values() for plan in user.inputs}
    return [plan.sums_file for folder, plan in missing.items() if folder not in inputs]


def _label_pages(study: Study) -> list[str]:
    """List the pages of the suspect labels of a study's runs, if the study has `labels: true`."""
    return [run.labels_page for run in study.runs] if study.data.get("labels") else []


def _newer_file(name: str, files: Iterable[str]) -> str:
    """Write a file newer than these files, so that Snakemake makes them again, and return its path.

    It is removed when this process ends. Each process has its own files, so a dry run does not affect a real run.
    """
    path = _outdated_folder() / name / "newer"  # in its own folder, since Snakemake lists each folder only once
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(time.time_ns()))  # always different: Snakemake ignores an input whose checksum it knows
    newest = max([path.stat().st_mtime, *(os.path.getmtime(file) + 1 for file in files if os.path.exists(file))])
    os.utime(path, (newest, newest))
    time.sleep(min(1.0, max(0.0, newest - time.time())))  # Snakemake refuses output older than an input
    return path.as_posix()


@cache
def _outdated_folder() -> Path:
    """Return the folder for this process's newer files (`_newer_file`). It is removed when the process ends."""
    folder = Path(OUTDATED, str(os.getpid()))
    atexit.register(_remove_folder, folder)
    return folder


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # another process still has a folder
        folder.parent.rmdir()


def _csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _json_preserving_order(value: Any, depth: int = 2) -> str:
    """Write JSON whose first levels keep their order, since a page shows tables and figures in the study's order."""
    if depth and isinstance(value, Mapping):
        return (
            "{"
            + ",".join(
                f"{canonical_json(key)}:{_json_preserving_order(item, depth - 1)}" for key, item in value.items()
            )
            + "}"
        )
    return canonical_json(value)
