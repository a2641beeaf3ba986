"""What the rules share: the checked config, path functions, code hashes, sizes of jobs, and job records restored from
the ledger. Code and config lie beside the Snakefile; data and results in the working folder (`snakemake --directory`).
"""

import functools
import os
import re
import shlex
import sys
from pathlib import Path

from snakemake.utils import validate

sys.path.insert(0, workflow.basedir)

from fednoise_core import noise, partition
from fednoise_core.io import ArtifactError, SpecError, canonical, digest, sha256_file
from workflow_scripts import device, failures, grid, ledger, paths, sizes
from workflow_scripts.config_file import Place, read_yaml
from workflow_scripts.paths import ANY, ARTIFACTS, NEEDS, RUN_FILES, TABLE_SUFFIXES
from workflow_scripts.project import Project
from workflow_scripts.runs import net_code, weights_of
from workflow_scripts.stepcode import StepCode
from workflow_scripts.study import Study

TEMPLATES = digest(
    {
        path.name: sha256_file(path)
        for pattern in ("*.html", "*.css", "*.js")
        for path in Path(workflow.basedir, "fednoise_core/report").glob(pattern)
    }
)


def told(function, *arguments):
    """Call a function; what is wrong with the settings or the ledger ends the workflow with that one message."""
    try:
        return function(*arguments)
    except (SpecError, ArtifactError) as error:
        sys.exit(str(error))


CONFIG = os.path.relpath(os.path.join(workflow.basedir, "config/config.yaml"))
told(read_yaml, CONFIG)  # first, as Snakemake's own message would name neither the file nor the line


configfile: CONFIG


HOME = os.path.relpath(workflow.basedir)  # relative, so that messages are short
FILES = tuple(os.path.relpath(file, workflow.basedir) for file in reversed(workflow.configfiles))
PROJECT = told(Project, config, HOME, FILES)
validate(config, "../config/schema/config.yaml")
STEPS = told(StepCode, workflow.basedir)
GPUS = [] if PROJECT.device == "cpu" else told(device.gpus)
# `cuda` asks for a GPU also where the machine that submits jobs has none
GPU = {"gpu": 1, "gpu_manufacturer": "nvidia"} if GPUS or PROJECT.device == "cuda" else {}
if GPUS and "gpu" not in workflow.global_resources:  # else --resources or a profile has said it
    workflow.global_resources["gpu"] = len(GPUS) * told(device.slots)
PROJECT.export()


@functools.cache
def study(name):
    """A study, checked."""
    made = told(Study, PROJECT, name)
    if made.absent and workflow.is_main_process:
        print(f"{PROJECT.names[name]}: {made.words_of_absence()}", file=sys.stderr)
    return made


told(lambda: PROJECT.catalogue)  # also what no study uses
for _name in PROJECT.studies:
    study(_name)

if workflow.is_main_process:
    _restored, _ = told(ledger.catch_up, PROJECT.roots)
    if _restored:
        print(f"ledger: restored {_restored} job records", file=sys.stderr)


wildcard_constraints:
    root="|".join(map(re.escape, PROJECT.roots)),
    dataset=r"[\w.+-]+",
    noise=r"[\w.+-]+",
    partition=r"[\w.+-]+",
    method=r"[\w.+@=-]+",  # @ and = in those that a sweep makes
    table=r"[\w.+-]+",
    figure=r"[\w.+-]+",
    seed=r"\d+",


def study_of(wildcards):
    """The study whose results folder is `root`."""
    return study(PROJECT.roots[wildcards.root])


def setting_targets(name):
    """Labels and partitions of a study, and the arrays that are kept with it."""
    files = artifact_files(study(name).runs)
    return [file for file in files if not file.startswith(ledger.UNSHARED)]


def data_files(name):
    """Arrays and weights of a study: all that data/ledger.jsonl, which DVC's first stage keeps, speaks of."""
    runs = study(name).runs
    arrays = {file for run in runs for file in (run.arrays, run.donor) if file}
    return arrays | {file for run in runs for file in weights_of(run.spec["train"])}


def run_targets(name):
    """The runs of a study: one file of each, and of runs that were made every other file that is gone. To ask for all
    files of all runs would cost Snakemake seven times as much.
    """
    runs = study(name).runs
    done = [f"{run.folder}/summary.json" for run in runs]
    made = [run for run, file in zip(runs, done) if os.path.exists(file)]
    return [*done, *(file for run in made for file in run.outputs if not os.path.exists(file))]


def shown_files(name):
    """Tables and figures of a study."""
    made = study(name)
    return paths.shown(made.root, made.tables, made.figures)


def label_pages(name):
    """Pages of suspect labels that a study's file asks for, one a run."""
    return [run.labels_page for run in study(name).runs if study(name).data.get("labels")]


def study_targets(name):
    """All of a study. Snakemake does not make a missing file in the middle again unless it is asked for it, too."""
    root = PROJECT.root(name)
    return [
        *setting_targets(name),
        *run_targets(name),
        *shown_files(name),
        *(f"{root}/{file}" for file in paths.STUDY_FILES),
        *label_pages(name),
    ]


def shown_targets():
    """(target, study) of every table and figure. They are names for a user to type, which a job's own Snakemake does not
    need.
    """
    files = PROJECT.names.items() if workflow.is_main_process else ()
    found = {f"{name}_{made}": name for name, file in files for made in shown_of(file)}
    taken = {f"{name}{ending}" for name in PROJECT.names for ending in ("", "_runs", "_settings")}
    return [(target, name) for target, name in found.items() if target not in taken]


def shown_of(file):
    """Names of the figures and tables in a study's file, which is not checked, and may be broken, as long as nobody asks
    for it.
    """
    try:
        data = read_yaml(Path(workflow.basedir, file))
    except SpecError:
        return []
    found = [data.get(kind) for kind in ("figures", "tables")]
    return [name for made in found if isinstance(made, dict) for name in made if isinstance(name, str)]


def run_of(wildcards):
    """A planned run."""
    ids = (wildcards.dataset, wildcards.noise, wildcards.partition, wildcards.method, int(wildcards.seed))
    return told(study_of(wildcards).run, *ids)


def train_code(wildcards):
    """The code hash of a run: the engine's, its method's and its nets'."""
    spec = run_of(wildcards).spec
    return STEPS.code(STEPS.train(spec["method"]["name"], net_code(spec["train"]), gpu=bool(GPU)))


def spec_part(name):
    """A part of a run's spec as a param of its own, so that Snakemake's "Reason" shows the part that changed."""
    return lambda wildcards: f"{name}={canonical(run_of(wildcards).spec[name])}"


def source_of(wildcards):
    """The settings of a data set whose arrays are asked for."""
    told(PROJECT.dataset, wildcards.dataset, Place("data"))
    file = PROJECT.arrays(wildcards.dataset)
    if wildcards.place != file.split("/")[1]:
        sys.exit(f"data/{wildcards.place}/{wildcards.dataset}.npz: the arrays of {wildcards.dataset!r} are {file}")
    return PROJECT.normal_dataset(wildcards.dataset)


def donor(wildcards):
    """The arrays that open-set noise takes images from, if the noise names another data set."""
    name = noise.needs_donor(study_of(wildcards).noise(wildcards.noise))
    return [] if name is None else [PROJECT.arrays(name)]


def optional(flag, files):
    """`flag file`, or nothing where there is no file."""
    return f"{flag} {shlex.quote(str(files))}" if files else ""


def weights(wildcards):
    """Files of weights that a run's nets start from."""
    return weights_of(run_of(wildcards).spec["train"])


def in_order(value, depth=2):
    """JSON whose first levels keep their order: a page shows tables and figures as the study lists them."""
    if depth and isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{in_order(item, depth - 1)}" for key, item in value.items()) + "}"
    return canonical(value)


def shown_runs(wildcards, key=None):
    """The runs that a table or figure (`key` "tables", "figures") shows, or all of the study, as its command says."""
    return canonical(grid.packed(chosen(wildcards, key)))


def chosen(wildcards, key=None):
    """The same as a list. A figure of settings shows each once, whatever methods there are."""
    made = study_of(wildcards)
    if key is None:
        return made.runs
    spec = named(wildcards, key)
    runs = made.select(spec)
    if spec["kind"] not in ARTIFACTS:
        return runs
    first = {}
    for run in runs:
        first.setdefault((run.labels, run.partition_file), run)
    return list(first.values())


def named(wildcards, key):
    """A table or figure of a study."""
    made, name = study_of(wildcards), wildcards.table if key == "tables" else wildcards.figure
    if name not in getattr(made, key):
        sys.exit(
            f"{PROJECT.names[made.name]}: {key}: none is named {name!r}, or it has no run at scale {PROJECT.scale}"
        )
    return getattr(made, key)[name]


def train_size(wildcards):
    """Memory and time of a training run."""
    train = run_of(wildcards).spec["train"]
    return sizes.trained(train, PROJECT.facts(wildcards.dataset), "cuda" if GPU else "cpu")


def data_size(wildcards):
    """Memory and time of noise or a partition."""
    return sizes.prepared(PROJECT.facts(wildcards.dataset))


def shown_size(key=None):
    """Memory and time of a table, a figure or all of a study."""
    return lambda wildcards: sizes.shown(len(chosen(wildcards, key)))


def need(rule, what, size):
    """A resource of a rule: `what` (mem_mb or runtime) of what the function `size` finds, unless the config says it."""
    return lambda wildcards, attempt: sizes.sized(rule, size(wildcards), config.get("jobs"), attempt)[what]


def run_files(runs, names):
    """Result files of runs."""
    return [f"{run.folder}/{name}" for run in runs for name in names]


def result_files(runs, names=()):
    """What everything that shows results reads. spec.json must be there, but makes nothing stale (see RUN_FILES)."""
    return [*run_files(runs, (*RUN_FILES, *names)), *map(ancient, run_files(runs, ["spec.json"]))]


def artifact_files(runs):
    """Arrays, labels and partitions of runs."""
    return sorted({file for run in runs for file in (run.arrays, run.labels, run.partition_file, run.donor) if file})


def shown(wildcards, key):
    """What a table or figure (`key` "tables", "figures") is made from."""
    spec, runs = named(wildcards, key), chosen(wildcards, key)
    if spec["kind"] in ARTIFACTS:
        return artifact_files(runs)
    return [*result_files(runs, NEEDS.get(spec["kind"], ())), *map(at_hand, paths.printed(spec))]


def labels_of(key):
    """What Snakemake's report calls a table or figure (`key` "tables", "figures"): its study and its title."""
    return lambda wc: {"study": wc.root, "shows": named(wc, key).get("title") or wc[key.removesuffix("s")]}


def at_hand(file):
    """A file of the user: in the working folder, else beside the Snakefile."""
    return file if os.path.exists(file) else os.path.normpath(os.path.join(HOME, file))


def asked(name, part):
    """Files of a table or figure that somebody asks for by its name. One of data that is not here is an error then; as a
    part of a whole paper it says so in its cells.
    """
    made = study(name)
    told(made.check_present, part)
    return paths.shown(made.root, {part} & made.tables.keys(), {part} & made.figures.keys())


def page_files(wildcards):
    """What a study's page is made from."""
    name = PROJECT.roots[wildcards.root]
    runs = study(name).runs
    names = (*RUN_FILES, "spec.json", "cost.json", "confusion.csv", "sites.csv")
    return [*shown_files(name), *run_files(runs, names), *artifact_files(runs)]


def setting_files(wildcards):
    """Arrays, labels and partition of a setting, in the grid or not."""
    ids = (wildcards.dataset, wildcards.noise, wildcards.partition, int(wildcards.seed))
    return told(study_of(wildcards).artifacts, *ids)


def closing_lines():
    """What won in the studies whose numbers this workflow made: what the step `summary` printed."""
    made = [job for job in workflow.dag.needrun_jobs(exclude_finished=False) if job.rule.name == "summary"]
    logs = [log for log in sorted(job.log[0] for job in made) if os.path.exists(log)]  # --touch writes none
    return [line for log in logs for line in Path(log).read_text(encoding="utf-8").splitlines()]
