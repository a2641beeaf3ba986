rule download:
    """The arrays of one data set. Data that may not be redistributed go to data/, which is never pushed."""
    output:
        arrays=update("{base}/arrays/{where}/{digest}/arrays.npz"),
        sums=update("{base}/arrays/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/{base}/download/{where}/{digest}.log",
    resources:
        **job_resources(4000, 60),
    params:
        settings=step_settings("{base}/arrays/{where}/{digest}"),
    message:
        "arrays of {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps download {params.settings}"
        " --out {output.arrays:q} --sums {output.sums:q} > {log:q} 2>&1"


rule pretrained:
    """Published weights that a net starts from."""
    output:
        weights="data/weights/{net}.safetensors",
    log:
        "logs/pretrained/{net}.log",
    wildcard_constraints:
        net=r"[\w.+-]+",
    resources:
        mem_mb=2000,
        runtime=60,
    message:
        "weights of {wildcards.net}"
    shell:
        "python -m workflow_scripts.steps pretrained --net {wildcards.net:q} --out {output.weights:q} > {log:q} 2>&1"
