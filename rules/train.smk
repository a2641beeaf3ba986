rule train:
    """One training run. Its checkpoint is in work/, so a killed job resumes from it."""
    input:
        arrays=step_input("store/runs/{where}/{digest}", "arrays", before=require_gpu),
        labels=step_input("store/runs/{where}/{digest}", "labels"),
        partition=step_input("store/runs/{where}/{digest}", "partition"),
        donor=step_input("store/runs/{where}/{digest}", "donor"),  # only for open-set noise: arrays of another data set
        weights=step_input("store/runs/{where}/{digest}", "weights"),  # only for nets that start from a file, which `net` names
    output:
        metrics=update("store/runs/{where}/{digest}/metrics.parquet"),
        diagnostics=update("store/runs/{where}/{digest}/diagnostics.parquet"),
        confusion=update("store/runs/{where}/{digest}/confusion.csv"),
        model=update("store/runs/{where}/{digest}/model.safetensors"),
        suspects=update("store/runs/{where}/{digest}/suspects.csv"),
        sites=update("store/runs/{where}/{digest}/sites.csv"),
        spec=update("store/runs/{where}/{digest}/spec.json"),
        summary=update("store/runs/{where}/{digest}/summary.json"),
        cost=update("store/runs/{where}/{digest}/cost.json"),
        sums=update("store/runs/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/train/{where}/{digest}.log",
    threads: 1
    resources:
        **GPU,
        **job_resources(4000, 720),
    params:
        settings=step_settings("store/runs/{where}/{digest}"),
        folder="store/runs/{where}/{digest}",
    message:
        "train {wildcards.where}/{wildcards.digest}: {resources.mem_mb} MB, {resources.runtime} minutes"
        + (", 1 GPU" if GPU else "")
    shell:  # without these settings glibc returns freed memory, and new pages for large tensors cost 14 to 31 %
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2000000000 "
        "OMP_NUM_THREADS={threads} python -m workflow_scripts.steps train --threads {threads} {params.settings}"
        " --arrays {input.arrays:q} --labels {input.labels:q} --partition {input.partition:q} --donor {input.donor:q}"
        " --work work/{params.folder:q} --out {params.folder:q}"
        ' --device "${{FEDNOISE_DEVICE:-auto}}" > {log:q} 2>&1'
