rule train:
    """One training run. Its checkpoint lies in work/, so that a killed job goes on where it was."""
    input:
        arrays=lambda wc: PROJECT.arrays(wc.dataset),
        labels=lambda wc: run_of(wc).labels,
        partition=lambda wc: run_of(wc).partition_file,
        donor=donor,
        weights=weights,
    output:
        spec="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/spec.json",
        metrics="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/metrics.parquet",
        diagnostics="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/diagnostics.parquet",
        summary="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/summary.json",
        cost="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/cost.json",
        model="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/model.safetensors",
        suspects="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/suspects.csv",
        sites="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/sites.csv",
        confusion="results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}/confusion.csv",
    log:
        "logs/train/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}.log",
    benchmark:
        "logs/train/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}.tsv"
    retries: 1
    threads: 1
    resources:
        **GPU,
        mem_mb=need("train", "mem_mb", train_size),
        runtime=need("train", "runtime", train_size),
    params:
        dataset=spec_part("dataset"),
        noise=spec_part("noise"),
        partition=spec_part("partition"),
        method=spec_part("method"),
        train=spec_part("train"),
        code=train_code,
        work=lambda wc: run_of(wc).work,
        images=lambda wc, input: optional("--donor", input.donor),
    message:
        "train {wildcards.method} on {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}, seed {wildcards.seed}"
    shell:
        "OMP_NUM_THREADS={threads} python -m workflow_scripts.train --threads {threads} --code {params.code:q}"
        " --settings {params.dataset:q} {params.noise:q} {params.partition:q} {params.method:q} {params.train:q}"
        " --seed {wildcards.seed:q} --ids {wildcards.dataset:q}/{wildcards.noise:q}/{wildcards.partition:q}/{wildcards.method:q}"
        " --arrays {input.arrays:q} --labels {input.labels:q} --partition {input.partition:q} {params.images}"
        ' --out "$(dirname {output.spec:q})" --work {params.work:q}'
        ' --device "${{FEDNOISE_DEVICE:-auto}}" > {log:q} 2>&1'
