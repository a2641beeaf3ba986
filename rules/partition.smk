rule partition:
    """Who holds which sample. The noisy labels are an input of partitions drawn over them."""
    input:
        missing("store/partitions/{where}/{digest}"),
    output:
        update("store/partitions/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/partition/{where}/{digest}.log",
    resources:
        **needs(2000, 10),
    params:
        command=command("store/partitions/{where}/{digest}"),
    message:
        "clients of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps.partition {params.command} > {log:q} 2>&1"
