"""Federated learning with noisy labels: from raw data to tables, figures and pages. README.md says how to run it."""

from snakemake.utils import min_version

min_version("9.27")


# only used with --sdm apptainer: the image that `docker build -t fednoise_core:0.1.0 -f Containerfile .` makes
container: "docker-daemon://fednoise_core:0.1.0"


report: "captions/workflow.rst"


include: "rules/common.smk"
include: "rules/download.smk"
include: "rules/noise.smk"
include: "rules/partition.smk"
include: "rules/train.smk"
include: "rules/report.smk"


rule all:
    """The configured studies."""
    default_target: True
    input:
        lambda wc: exit_on_error(TARGETS.combine_targets, TARGETS.study_targets, PROJECT.studies),
    localrule: True
    message:
        "all configured studies"


# in another workflow's module only the targets of the studies that it names
IS_MODULE = not os.path.samefile(workflow.basedir, HOME)
NAMED = exit_on_error(TARGETS.named_targets, PROJECT.studies if IS_MODULE else PROJECT.study_files)

for _name, _target in NAMED.items() if workflow.is_main_process else ():

    rule:
        """A study, its settings or its runs, one table or figure, all papers, …: names for a user to type."""
        name:
            _name
        input:
            lambda wc, list_files=_target.list_files: exit_on_error(list_files),
        localrule: True
        message:
            _name

    if workflow.modifier.avail_rulename(_name):  # a module's rules can be left out, and have another name
        # for snakemake --list
        workflow.get_rule(workflow.modifier.modify_rulename(_name)).docstring = _target.description


if not IS_MODULE:  # another workflow has targets of its own

    rule unknown_target:
        """Refuse an unknown target, and list the known ones."""
        input:
            lambda wc: exit_on_error(TARGETS.refuse_target, wc.target),
        output:
            "{target}",
        wildcard_constraints:
            target=r"[\w-]+",
        localrule: True


onstart:
    if workflow.is_main_process and workflow.local_exec:
        # else Snakemake 9.27 looks for ready jobs once more a second with every job that has ended
        workflow.scheduler.job_rate_limiter = None
        if not (GPU or workflow.deployment_settings.deployment_method):
            _server = start_server()  # in a variable, so that it is not collected
    if workflow.is_main_process and sys.stderr.isatty():
        report_totals(
            TARGETS.find_runs(job.output.sums for job in workflow.dag.needrun_jobs() if job.rule.name == "train")
        )


onerror:
    # at the very end, after Snakemake's own messages
    atexit.register(
        print, "Not all jobs were done. What has ended is kept: repeat the command to go on.", file=sys.stderr
    )


onsuccess:
    for _line in summary_lines():
        print(_line, file=sys.stderr)
    if workflow.is_main_process:
        TARGETS.remove_lists()
