rule noise:
    """Noisy labels. The partition is an input of noise that depends on the client."""
    input:
        missing_inputs("store/labels/{where}/{digest}"),
    output:
        update("store/labels/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/noise/{where}/{digest}.log",
    resources:
        **job_resources(2000, 10),
    params:
        command=step_command("store/labels/{where}/{digest}"),
    message:
        "labels of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps noise {params.command} > {log:q} 2>&1"
