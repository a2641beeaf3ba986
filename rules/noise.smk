rule noise:
    """Noisy labels. The partition is an input of noise that depends on the client, otherwise `any`."""
    input:
        arrays=lambda wc: PROJECT.arrays(wc.dataset),
        partition=lambda wc: (
            []
            if wc.partition == ANY
            else f"results/{wc.root}/partitions/{wc.dataset}/{ANY}/{wc.partition}/seed{wc.seed}.npz"
        ),
        donor=donor,
        file=lambda wc: noise.needs_file(study_of(wc).noise(wc.noise)) or [],
    output:
        "results/{root}/labels/{dataset}/{noise}/{partition}/seed{seed}.npz",
    log:
        "logs/noise/{root}/{dataset}/{noise}/{partition}/seed{seed}.log",
    resources:
        mem_mb=need("noise", "mem_mb", data_size),
        runtime=need("noise", "runtime", data_size),
    params:
        spec=lambda wc: canonical(study_of(wc).noise(wc.noise)),
        code=lambda wc: STEPS.code(STEPS.noise(study_of(wc).noise(wc.noise)["kind"])),
        given=lambda wc, input: optional("--partition", input.partition),
        images=lambda wc, input: optional("--donor", input.donor),
    message:
        "labels of {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}, seed {wildcards.seed}"
    shell:
        "python -m workflow_scripts.inject_noise --code {params.code:q} --spec {params.spec:q} --seed {wildcards.seed:q}"
        " --arrays {input.arrays:q} {params.given} {params.images} --out {output:q} > {log:q} 2>&1"
