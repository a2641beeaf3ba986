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


localrules:
    all,
    papers,
    stage_data,


rule all:
    """The configured studies."""
    default_target: True
    input:
        lambda wc: [file for name in PROJECT.studies for file in study_targets(name)],
    message:
        "all configured studies"


rule papers:
    """Every paper's study, configured or not."""
    input:
        lambda wc: [file for name in PROJECT.papers for file in study_targets(name)],
    message:
        "all papers"


rule stage_data:
    """All of data/ that the configured studies need."""
    input:
        lambda wc: sorted({file for name in PROJECT.studies for file in data_files(name)}),
    message:
        "all data"


for _name in PROJECT.names:

    rule:
        """One study: tables, figures, page and summary."""
        name:
            _name
        input:
            lambda wc, name=_name: study_targets(name),
        localrule: True
        message:
            _name

    rule:
        """The noisy labels and partitions of one study, without training."""
        name:
            f"{_name}_settings"
        input:
            lambda wc, name=_name: setting_targets(name),
        localrule: True
        message:
            f"settings of {_name}"

    rule:
        """The runs of one study, without its tables and figures."""
        name:
            f"{_name}_runs"
        input:
            lambda wc, name=_name: [*setting_targets(name), *run_targets(name)],
        localrule: True
        message:
            f"runs of {_name}"


for _target, _name in shown_targets():

    rule:
        """One table or figure of one study, in its three formats."""
        name:
            _target
        input:
            lambda wc, name=_name, part=_target.removeprefix(_name + "_"): asked(name, part),
        localrule: True
        message:
            _target


onsuccess:
    ledger.pack()
    for _line in closing_lines():
        print(_line, file=sys.stderr)


onerror:
    ledger.pack()
    for _line in failures.last_words(log):
        print(_line, file=sys.stderr)
