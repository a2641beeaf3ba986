rule train:
    """One training run. Its checkpoint lies in work/, so that a killed job goes on where it was."""
    input:
        training_inputs("store/runs/{where}/{digest}"),
    output:
        update("store/runs/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/train/{where}/{digest}.log",
    benchmark:
        "logs/train/{where}/{digest}.tsv"
    threads: 1
    resources:
        **GPU,
        **job_resources(4000, 720),
    params:
        command=step_command("store/runs/{where}/{digest}"),
    message:
        "train {wildcards.where}: {resources.mem_mb} MB, {resources.runtime} minutes" + (", 1 GPU" if GPU else "")
    shell:  # glibc must keep freed memory: else every step gets its large tensors as new pages, which costs 14 to 31 %
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2000000000 "
        "OMP_NUM_THREADS={threads} python -m workflow_scripts.steps train --threads {threads} {params.command}"
        ' --device "${{FEDNOISE_DEVICE:-auto}}" > {log:q} 2>&1'
