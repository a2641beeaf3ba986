rule partition:
    """The training samples of each client."""
    input:
        arrays=step_input("store/partitions/{where}/{digest}", "arrays"),
        labels=step_input("store/partitions/{where}/{digest}", "labels"),  # only for partitions that are drawn over the noisy labels
    output:
        partition=update("store/partitions/{where}/{digest}/partition.npz"),
        sums=update("store/partitions/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/partition/{where}/{digest}.log",
    resources:
        **job_resources(2000, 10),
    params:
        settings=step_settings("store/partitions/{where}/{digest}"),
    message:
        "clients of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps partition {params.settings}"
        " --arrays {input.arrays:q} --labels {input.labels:q}"
        " --out {output.partition:q} --sums {output.sums:q} > {log:q} 2>&1"
