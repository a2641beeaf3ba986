rule table:
    """One table of a study as CSV, Markdown and LaTeX."""
    input:
        files=lambda wc: shown(wc, "tables"),
    output:
        csv=report(
            "results/{root}/tables/{table}.csv",
            caption="../captions/table.rst",
            category="{root}",
            subcategory="tables",
            labels=labels_of("tables"),
        ),
        md="results/{root}/tables/{table}.md",
        tex="results/{root}/tables/{table}.tex",
    log:
        "logs/table/{root}/{table}.log",
    resources:
        mem_mb=need("table", "mem_mb", shown_size("tables")),
        runtime=need("table", "runtime", shown_size("tables")),
    params:
        spec=lambda wc: canonical(named(wc, "tables")),
        code=STEPS.code(STEPS.report("make_table")),
        runs=lambda wc: shown_runs(wc, "tables"),
    message:
        "table {wildcards.table} of {wildcards.root}"
    shell:
        "out={output.csv:q}; python -m workflow_scripts.make_table --code {params.code:q} --spec {params.spec:q} --runs {params.runs:q}"
        ' --root "${{out%/*/*}}" --out-prefix "${{out%.csv}}" > {log:q} 2>&1'


rule figure:
    """One figure of a study as SVG, PNG and PDF, and what was drawn as CSV."""
    input:
        files=lambda wc: shown(wc, "figures"),
    output:
        svg=report(
            "results/{root}/figures/{figure}.svg",
            caption="../captions/figure.rst",
            category="{root}",
            subcategory="figures",
            labels=labels_of("figures"),
        ),
        png="results/{root}/figures/{figure}.png",
        pdf="results/{root}/figures/{figure}.pdf",
        csv="results/{root}/figures/{figure}.csv",
    log:
        "logs/figure/{root}/{figure}.log",
    resources:
        mem_mb=need("figure", "mem_mb", shown_size("figures")),
        runtime=need("figure", "runtime", shown_size("figures")),
    params:
        spec=lambda wc: canonical(named(wc, "figures")),
        code=STEPS.code(STEPS.report("make_figure")),
        runs=lambda wc: shown_runs(wc, "figures"),
    message:
        "figure {wildcards.figure} of {wildcards.root}"
    shell:
        "out={output.csv:q}; python -m workflow_scripts.make_figure --code {params.code:q} --spec {params.spec:q} --runs {params.runs:q}"
        ' --root "${{out%/*/*}}" --out-prefix "${{out%.csv}}" > {log:q} 2>&1'


rule summary:
    """The few numbers that git keeps, and the CSVs that `dvc plots` draws."""
    input:
        files=lambda wc: result_files(study_of(wc).runs),
    output:
        metrics="results/{root}/metrics.json",
        headline="results/{root}/headline.json",
        accuracy="results/{root}/plots/accuracy.csv",
        curves="results/{root}/plots/curves.csv",
    log:
        "logs/summary/{root}.log",
    resources:
        mem_mb=need("summary", "mem_mb", shown_size()),
        runtime=need("summary", "runtime", shown_size()),
    params:
        code=STEPS.code(STEPS.report("summary")),
        runs=lambda wc: shown_runs(wc),
    message:
        "numbers of {wildcards.root}"
    shell:
        "out={output.metrics:q}; python -m workflow_scripts.summary --code {params.code:q} --runs {params.runs:q}"
        ' --root "${{out%/*}}" --out "$out" --headline {output.headline:q}'
        " --accuracy {output.accuracy:q} --curves {output.curves:q} > {log:q} 2>&1"


rule page:
    """The page of a study: one HTML file that needs no network."""
    input:
        files=page_files,
    output:
        report(
            "results/{root}/report.html",
            caption="../captions/page.rst",
            category="{root}",
            labels={"study": "{root}", "shows": "the whole study on one page"},
        ),
    log:
        "logs/page/{root}.log",
    resources:
        mem_mb=need("page", "mem_mb", shown_size()),
        runtime=need("page", "runtime", shown_size()),
    params:
        code=STEPS.code(STEPS.report("make_page")),
        templates=TEMPLATES,
        study=lambda wc: in_order(study_of(wc).described()),
        runs=lambda wc: shown_runs(wc),
    message:
        "page of {wildcards.root}"
    shell:
        "out={output:q}; python -m workflow_scripts.make_page --code {params.code:q} --study {params.study:q} --runs {params.runs:q}"
        ' --root "${{out%/*}}" --out "$out" > {log:q} 2>&1'


rule labels:
    """The suspect labels of one run as a page to decide in. A study makes them with `labels: true`."""
    input:
        arrays=lambda wc: PROJECT.arrays(wc.dataset),
        labels=lambda wc: run_of(wc).labels,
        donor=donor,
        suspects=lambda wc: f"{run_of(wc).folder}/suspects.csv",
        sites=lambda wc: f"{run_of(wc).folder}/sites.csv",
    output:
        "build/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}/labels.html",
    log:
        "logs/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}.log",
    resources:
        mem_mb=need("labels", "mem_mb", data_size),
        runtime=need("labels", "runtime", data_size),
    params:
        code=STEPS.code(STEPS.report("make_labels")),
        templates=TEMPLATES,
        title=lambda wc: f"{wc.dataset} · {wc.noise} · {wc.partition} · {run_of(wc).label}, seed {wc.seed}",
        images=lambda wc, input: optional("--donor", input.donor),
    message:
        "suspect labels of {wildcards.method} on {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}, seed {wildcards.seed}"
    shell:
        "python -m workflow_scripts.make_labels --code {params.code:q} --arrays {input.arrays:q} --labels {input.labels:q} {params.images}"
        ' --run "$(dirname {input.suspects:q})" --title {params.title:q} --out {output:q} > {log:q} 2>&1'


rule setting:
    """Pictures of one setting without any training: build/settings/<root>/<data set>/<noise>/<partition>/seed<n>.html."""
    input:
        unpack(lambda wc: setting_files(wc)),
        donor=donor,
    output:
        "build/settings/{root}/{dataset}/{noise}/{partition}/seed{seed}.html",
    log:
        "logs/setting/{root}/{dataset}/{noise}/{partition}/seed{seed}.log",
    resources:
        mem_mb=need("setting", "mem_mb", data_size),
        runtime=need("setting", "runtime", shown_size()),
    params:
        code=STEPS.code(STEPS.report("describe")),
        templates=TEMPLATES,
        images=lambda wc, input: optional("--donor", input.donor),
    message:
        "pictures of {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}"
    shell:
        "python -m workflow_scripts.describe --code {params.code:q} --arrays {input.arrays:q} --labels {input.labels:q}"
        " --partition {input.partition_file:q} {params.images}"
        " --ids {wildcards.dataset:q}/{wildcards.noise:q}/{wildcards.partition:q} --out {output:q} > {log:q} 2>&1"
