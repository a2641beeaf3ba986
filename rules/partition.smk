rule partition:
    """Who holds which sample. The noisy labels are an input of partitions drawn over them."""
    input:
        missing("store/partitions/{where}/{digest}"),
    output:
        update("store/partitions/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/partition/{where}/{digest}.log",
    resources:
        mem_mb=lambda wc, attempt: 2000 * attempt,
        runtime=lambda wc, attempt: 10 * attempt,
    params:
        folder="store/partitions/{where}/{digest}",
        command=command("store/partitions/{where}/{digest}"),
    message:
        "clients of {wildcards.where}"
    shell:
        "python -m workflow_scripts.partition {params.command} --out {params.folder}/partition.npz --sums {params.folder} > {log:q} 2>&1"
