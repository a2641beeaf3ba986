RUN = "store/runs/{where}/{digest}"


rule train:
    """One training run. Its checkpoint lies in work/, so that a killed job goes on where it was."""
    input:
        arrays=step_input(RUN, "arrays", before=require_gpu),
        labels=step_input(RUN, "labels"),
        partition=step_input(RUN, "partition"),
        donor=step_input(RUN, "donor"),  # only for open-set noise: arrays of another data set
        weights=step_input(RUN, "weights"),  # only for nets that start from a file
    output:
        metrics=update(RUN + "/metrics.parquet"),
        summary=update(RUN + "/summary.json"),
        model=update(RUN + "/model.safetensors"),
        suspects=update(RUN + "/suspects.csv"),
        sites=update(RUN + "/sites.csv"),
        cost=update(RUN + "/cost.json"),
        sums=update(RUN + "/SHA256SUMS"),
    log:
        "logs/train/{where}/{digest}.log",
    benchmark:
        "logs/train/{where}/{digest}.tsv"
    threads: 1
    resources:
        **GPU,
        **job_resources(4000, 720),
    params:
        settings=step_settings(RUN),
        folder=RUN,
    message:
        "train {wildcards.where}: {resources.mem_mb} MB, {resources.runtime} minutes" + (", 1 GPU" if GPU else "")
    shell:  # glibc must keep freed memory: else every step gets its large tensors as new pages, which costs 14 to 31 %
        "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2000000000 "
        "OMP_NUM_THREADS={threads} python -m workflow_scripts.steps train --threads {threads} {params.settings}"
        " --arrays {input.arrays:q} --labels {input.labels:q} --partition {input.partition:q} --donor {input.donor:q}"
        " --work work/{params.folder:q} --out {params.folder:q}"
        ' --device "${{FEDNOISE_DEVICE:-auto}}" > {log:q} 2>&1'
