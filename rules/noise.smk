rule noise:
    """Noisy labels. The partition is an input of noise that depends on the client."""
    input:
        missing("store/labels/{where}/{digest}"),
    output:
        update("store/labels/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/noise/{where}/{digest}.log",
    resources:
        mem_mb=lambda wc, attempt: 2000 * attempt,
        runtime=lambda wc, attempt: 10 * attempt,
    params:
        folder="store/labels/{where}/{digest}",
        command=command("store/labels/{where}/{digest}"),
    message:
        "labels of {wildcards.where}"
    shell:
        "python -m workflow_scripts.inject_noise {params.command} --out {params.folder}/labels.npz --sums {params.folder} > {log:q} 2>&1"
