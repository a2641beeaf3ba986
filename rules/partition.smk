CLIENTS = "store/partitions/{where}/{digest}"


rule partition:
    """The training samples of each client."""
    input:
        arrays=step_input(CLIENTS, "arrays"),
        labels=step_input(CLIENTS, "labels"),  # only for partitions that are drawn over the noisy labels
    output:
        partition=update(CLIENTS + "/partition.npz"),
        sums=update(CLIENTS + "/SHA256SUMS"),
    log:
        "logs/partition/{where}/{digest}.log",
    resources:
        **job_resources(2000, 10),
    params:
        settings=step_settings(CLIENTS),
    message:
        "clients of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps partition {params.settings}"
        " --arrays {input.arrays:q} --labels {input.labels:q}"
        " --out {output.partition:q} --sums {output.sums:q} > {log:q} 2>&1"
