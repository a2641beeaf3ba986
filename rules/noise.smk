LABELS = "store/labels/{where}/{digest}"


rule noise:
    """Noisy labels for the arrays of one data set."""
    input:
        arrays=step_input(LABELS, "arrays"),
        partition=step_input(LABELS, "partition"),  # only for noise that depends on the client
        donor=step_input(LABELS, "donor"),  # only for open-set noise: arrays of another data set
    output:
        labels=update(LABELS + "/labels.npz"),
        sums=update(LABELS + "/SHA256SUMS"),
    log:
        "logs/noise/{where}/{digest}.log",
    resources:
        **job_resources(2000, 10),
    params:
        settings=step_settings(LABELS),
    message:
        "labels of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps noise {params.settings}"
        " --arrays {input.arrays:q} --partition {input.partition:q} --donor {input.donor:q}"
        " --out {output.labels:q} --sums {output.sums:q} > {log:q} 2>&1"
