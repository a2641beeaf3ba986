rule noise:
    """Noisy labels for the arrays of one data set."""
    input:
        arrays=step_input("store/labels/{where}/{digest}", "arrays"),
        partition=step_input("store/labels/{where}/{digest}", "partition"),  # only for noise that depends on the client
        donor=step_input("store/labels/{where}/{digest}", "donor"),  # only for open-set noise: arrays of another data set
    output:
        labels=update("store/labels/{where}/{digest}/labels.npz"),
        sums=update("store/labels/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/noise/{where}/{digest}.log",
    resources:
        **job_resources(2000, 10),
    params:
        settings=step_settings("store/labels/{where}/{digest}"),
    message:
        "labels of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps noise {params.settings}"
        " --arrays {input.arrays:q} --partition {input.partition:q} --donor {input.donor:q}"
        " --out {output.labels:q} --sums {output.sums:q} > {log:q} 2>&1"
