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
include: "rules/figures.smk"


rule all:
    """The configured studies."""
    default_target: True
    input:
        lambda wc: [file for name in PROJECT.studies for file in told(TARGETS.of_study, name)],
    localrule: True


rule papers:
    """Every paper's study, configured or not."""
    input:
        lambda wc: [file for name in PROJECT.papers for file in told(TARGETS.of_study, name)],
    localrule: True


rule stored:
    """All that the configured studies have in the store."""
    input:
        lambda wc: [file for name in PROJECT.studies for file in told(TARGETS.of_store, name)],
    localrule: True


rule stage_data:
    """Arrays and weights that the configured studies need."""
    input:
        lambda wc: sorted({file for name in PROJECT.studies for file in told(TARGETS.of_data, name)}),
    localrule: True


for _name in PROJECT.names:

    rule:
        """One study: tables, figures, page and summary."""
        name:
            _name
        input:
            lambda wc, name=_name: told(TARGETS.of_study, name),
        localrule: True

    rule:
        """The noisy labels and partitions of one study, without training."""
        name:
            f"{_name}_settings"
        input:
            lambda wc, name=_name: told(TARGETS.of_settings, name),
        localrule: True

    rule:
        """The runs of one study, without its tables and figures."""
        name:
            f"{_name}_runs"
        input:
            lambda wc, name=_name: told(TARGETS.of_runs, name),
        localrule: True


for _target, _name, _part in shown_targets():

    rule:
        """One table or figure of one study, in all its formats."""
        name:
            _target
        input:
            lambda wc, name=_name, part=_part: told(TARGETS.of_part, name, part),
        localrule: True


onstart:
    scheduling.start_as_jobs_end(workflow)


onsuccess:
    for _line in told(closing_lines):
        print(_line, file=sys.stderr)
