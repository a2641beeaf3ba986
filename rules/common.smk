"""Parts that all rules share: the checked config, targets and plans. Code and config are beside the Snakefile. Data and
results are in the working folder (`snakemake --directory`). workflow_scripts/study/targets.py and store.py plan them.

Each step writes to an address. `{where}` describes its settings in words, for people. `{digest}` is a hash of the
settings, the code that the step imports (without comments and docstrings), the versions of torch, numpy and Python, the
addresses of its inputs, and the contents of your own files. After a method is changed, its runs have new addresses, and
so have the tables, figures and pages that show them. They are made again, and the old ones stay in store/. A change of
methods/fedavg.py, which every method imports, affects all runs. Arrays, labels and partitions import no method and are
kept. A step writes SHA256SUMS last, so an address with this file is finished. Outputs are `update(...)`, because
Snakemake would otherwise delete finished outputs before a job that may fail.
"""

import atexit
import os
import re
import sys
from pathlib import Path

# relative, so that messages are short
HOME = os.path.relpath(Path(str(workflow.current_basedir)).parent)
sys.path.insert(0, os.path.abspath(HOME))

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.commands.progress import report_totals
from workflow_scripts.machine import device
from workflow_scripts.machine.fork_client import start_server
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.config.project import Project
from workflow_scripts.study.targets import Targets


def exit_on_error(function, *arguments):
    """Call a function, and end the workflow with its message if settings are wrong or a file cannot be written."""
    try:
        return function(*arguments)
    except (SpecError, ArtifactError, OSError) as error:
        sys.exit(str(error))


CONFIG = os.path.normpath(os.path.join(HOME, "config/config.yaml"))
exit_on_error(read_yaml, CONFIG)  # first, because Snakemake's own message names neither file nor line


configfile: CONFIG


# As a module, this workflow uses the `config` of the calling workflow and does not read that workflow's config files.
FILES = tuple(os.path.relpath(file, HOME) for file in reversed(workflow.configfiles))
FILES = FILES if "config/config.yaml" in FILES else ("config/config.yaml",)
PROJECT = exit_on_error(lambda: Project({**read_yaml(CONFIG), **config}, HOME, FILES))
TARGETS = exit_on_error(lambda: Targets(PROJECT, quiet=not workflow.is_main_process, dry=lambda: workflow.dryrun))
GPUS = [] if PROJECT.device == "cpu" else exit_on_error(device.visible_gpus)
exit_on_error(device.slots_per_gpu)
# `device: cuda` requests a GPU even if the submitting machine has none
GPU = {"gpu": 1, "gpu_manufacturer": "nvidia"} if GPUS or PROJECT.device == "cuda" else {}
PROJECT.export_environment()
exit_on_error(lambda: PROJECT.catalogue)  # checks definitions that no study uses, too
for _name in () if PROJECT.set else PROJECT.studies:  # `--set` concerns only the requested studies
    exit_on_error(TARGETS.load_study, _name)


wildcard_constraints:
    base="store|data",
    where=r"[\w.+/-]+",
    digest="[0-9a-f]{16}",
    root="|".join(map(re.escape, PROJECT.studies_by_folder)),
    dataset=r"[\w.+-]+",
    noise=r"[\w.+-]+",
    partition=r"[\w.+-]+",
    method=r"[\w.+@=-]+",  # the variants of a sweep have @ and = in their ids
    table=r"[\w.+-]+",
    figure=r"[\w.+-]+",
    seed=r"\d+",


def job_resources(megabytes, minutes):
    """Memory and time of a job, multiplied by the attempt's number. `set-resources` of a profile overrides them."""
    return {
        "mem_mb": lambda wildcards, attempt: megabytes * attempt,
        "runtime": lambda wildcards, attempt: minutes * attempt,
    }


def require_gpu():
    """Exit before any job starts if the config requires a GPU and none is visible."""
    if PROJECT.device == "cuda" and not GPUS and workflow.local_exec and not workflow.dryrun:
        sys.exit("config: device: cuda was asked for, but no GPU is visible. Say `device: auto` or `device: cpu`")


def step_input(folder, name, before=lambda: None):
    """Return an input function for the file that the step with this folder reads under a name, if there is one.

    Inputs are `ancient`: the address of a result says what it was made from, so file times do not matter.
    """

    def find(wildcards):
        before()
        plan = exit_on_error(TARGETS.find_plan, folder.format(**wildcards))
        return [ancient(file) for file in plan.input_files(name)]

    return find


def missing_inputs(folder, kind):
    """Return an input function for the missing ones among the runs, tables, … that the step with this folder shows."""
    return lambda wildcards: exit_on_error(TARGETS.find_plan, folder.format(**wildcards)).missing_inputs(kind)


def step_settings(folder):
    """Return a function for params: the arguments of the step with this folder, without its files.

    They are its settings as JSON (`--spec`), its seed, the hash of its code (the job refuses if the code has changed
    since), and for tables, figures and pages the path of a list of all runs that they show.
    """
    return lambda wildcards: exit_on_error(TARGETS.step_settings, folder.format(**wildcards))


def copy_inputs(key):
    """Return an input function for the files that must be made before they are copied to results/.

    If a copy differs from the planned file, a marker file newer than the copy makes Snakemake copy again.
    """
    name = {"tables": "table", "figures": "figure"}.get(key)
    return lambda wc: exit_on_error(TARGETS.copy_inputs, wc.root, key, wc[name] if name else "")


def copy_command(key):
    """Return a function for params: the command that copies files of the store to results/."""
    name = {"tables": "table", "figures": "figure"}.get(key)

    return lambda wc: exit_on_error(TARGETS.copy_command, wc.root, key, wc[name] if name else "")


def report_labels(key):
    """Return the labels of a table or figure in Snakemake's report. `key` is "tables" or "figures"."""
    return lambda wc: {"study": wc.root, "shows": TARGETS.output_title(wc.root, key, wc[key.removesuffix("s")])}


def summary_lines():
    """Return the lines that the step `metrics` printed for each study whose page this workflow made."""
    made = [job for job in workflow.dag.needrun_jobs(exclude_finished=False) if job.rule.name == "show_study"]
    return [line for root in sorted({str(job.wildcards.root) for job in made}) for line in TARGETS.summary_lines(root)]
