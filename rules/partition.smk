rule partition:
    """Who holds which sample. The noisy labels are an input of partitions drawn over them."""
    input:
        missing_inputs("store/partitions/{where}/{digest}"),
    output:
        update("store/partitions/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/partition/{where}/{digest}.log",
    resources:
        **job_resources(2000, 10),
    params:
        command=step_command("store/partitions/{where}/{digest}"),
    message:
        "clients of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps partition {params.command} > {log:q} 2>&1"
