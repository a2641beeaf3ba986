rule train:
    """One training run. Its checkpoint lies in work/, so that a killed job goes on where it was."""
    input:
        before_training("store/runs/{where}/{digest}"),
    output:
        update("store/runs/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/train/{where}/{digest}.log",
    benchmark:
        "logs/train/{where}/{digest}.tsv"
    threads: 1
    resources:
        **GPU,
        mem_mb=lambda wc, attempt: 4000 * attempt,
        runtime=lambda wc, attempt: 720 * attempt,
    params:
        folder="store/runs/{where}/{digest}",
        command=command("store/runs/{where}/{digest}"),
    message:
        "train {wildcards.where}"
    shell:
        "OMP_NUM_THREADS={threads} python -m workflow_scripts.train --threads {threads} {params.command}"
        ' --out {params.folder} --device "${{FEDNOISE_DEVICE:-auto}}" > {log:q} 2>&1'
