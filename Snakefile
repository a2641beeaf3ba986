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


# As a module, this workflow has targets only for the studies that the calling workflow names.
IS_MODULE = not os.path.samefile(workflow.basedir, HOME)
NAMED = exit_on_error(TARGETS.named_targets, PROJECT.studies if IS_MODULE else PROJECT.study_files)

for _name, _target in NAMED.items() if workflow.is_main_process else ():

    rule:
        """One named target: a study, its settings or its runs, one table or figure, or all papers."""
        name:
            _name
        input:
            lambda wc, list_files=_target.list_files: exit_on_error(list_files),
        localrule: True
        message:
            _name

    if workflow.modifier.avail_rulename(_name):  # a module can exclude or rename rules
        # for snakemake --list
        workflow.get_rule(workflow.modifier.modify_rulename(_name)).docstring = _target.description


if not IS_MODULE:  # a calling workflow checks its own targets

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
        # otherwise each ended job adds one more search for ready jobs per second (Snakemake 9.27)
        workflow.scheduler.job_rate_limiter = None
        if not (GPU or workflow.deployment_settings.deployment_method):
            _server = start_server()  # the variable keeps it from being garbage-collected
    if workflow.is_main_process and sys.stderr.isatty():
        report_totals(
            TARGETS.find_runs(job.output.sums for job in workflow.dag.needrun_jobs() if job.rule.name == "train")
        )


onerror:
    # printed at exit, after Snakemake's own messages
    atexit.register(
        print, "Not all jobs were done. What has ended is kept: repeat the command to go on.", file=sys.stderr
    )


onsuccess:
    for _line in summary_lines():
        print(_line, file=sys.stderr)
    if workflow.is_main_process:
        TARGETS.remove_lists()
