rule partition:
    """Who holds which sample. The noisy labels are an input of partitions drawn over them, otherwise `any`."""
    input:
        arrays=lambda wc: PROJECT.arrays(wc.dataset),
        labels=lambda wc: (
            [] if wc.noise == ANY else f"results/{wc.root}/labels/{wc.dataset}/{wc.noise}/{ANY}/seed{wc.seed}.npz"
        ),
    output:
        "results/{root}/partitions/{dataset}/{noise}/{partition}/seed{seed}.npz",
    log:
        "logs/partition/{root}/{dataset}/{noise}/{partition}/seed{seed}.log",
    resources:
        mem_mb=need("partition", "mem_mb", data_size),
        runtime=need("partition", "runtime", data_size),
    params:
        spec=lambda wc: canonical(study_of(wc).partition(wc.partition)),
        code=lambda wc: STEPS.code(STEPS.partition(study_of(wc).partition(wc.partition)["kind"])),
        given=lambda wc, input: optional("--labels", input.labels),
    message:
        "clients of {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}, seed {wildcards.seed}"
    shell:
        "python -m workflow_scripts.partition --code {params.code:q} --spec {params.spec:q} --seed {wildcards.seed:q}"
        " --arrays {input.arrays:q} {params.given} --out {output:q} > {log:q} 2>&1"
