rule table:
    """One table as CSV, Markdown and LaTeX."""
    input:
        missing("store/tables/{where}/{digest}"),
    output:
        update("store/tables/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/table/{where}/{digest}.log",
    resources:
        mem_mb=lambda wc, attempt: 4000 * attempt,
        runtime=60,
    params:
        folder="store/tables/{where}/{digest}",
        command=command("store/tables/{where}/{digest}"),
    message:
        "table {wildcards.where}"
    shell:
        "python -m workflow_scripts.make_table {params.command} --out-prefix {params.folder}/table --sums {params.folder} > {log:q} 2>&1"


rule figure:
    """One figure as SVG, PNG and PDF, and what was drawn as CSV."""
    input:
        missing("store/figures/{where}/{digest}"),
    output:
        update("store/figures/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/figure/{where}/{digest}.log",
    resources:
        mem_mb=lambda wc, attempt: 4000 * attempt,
        runtime=60,
    params:
        folder="store/figures/{where}/{digest}",
        command=command("store/figures/{where}/{digest}"),
    message:
        "figure {wildcards.where}"
    shell:
        "python -m workflow_scripts.make_figure {params.command} --out-prefix {params.folder}/figure --sums {params.folder} > {log:q} 2>&1"


rule summary:
    """The few numbers that git keeps, and the CSVs that `dvc plots` draws."""
    input:
        missing("store/summaries/{digest}"),
    output:
        update("store/summaries/{digest}/SHA256SUMS"),
    log:
        "logs/summary/{digest}.log",
    resources:
        mem_mb=lambda wc, attempt: 4000 * attempt,
        runtime=60,
    params:
        folder="store/summaries/{digest}",
        command=command("store/summaries/{digest}"),
    message:
        "numbers of a study"
    shell:
        "python -m workflow_scripts.summary {params.command} --out {params.folder}/metrics.json"
        " --headline {params.folder}/headline.json --accuracy {params.folder}/accuracy.csv"
        " --curves {params.folder}/curves.csv --sums {params.folder} > {log:q} 2>&1"


rule page:
    """The page of a study: one HTML file that works offline."""
    input:
        missing("store/pages/{digest}"),
    output:
        update("store/pages/{digest}/SHA256SUMS"),
    log:
        "logs/page/{digest}.log",
    resources:
        mem_mb=lambda wc, attempt: 8000 * attempt,
        runtime=60,
    params:
        folder="store/pages/{digest}",
        command=command("store/pages/{digest}"),
    message:
        "page of a study"
    shell:
        "python -m workflow_scripts.make_page {params.command} --out {params.folder}/report.html --sums {params.folder} > {log:q} 2>&1"


rule show_table:
    """A table where people look for it."""
    input:
        before_copies("tables"),
    output:
        csv=report(
            "results/{root}/tables/{table}.csv",
            caption="../captions/table.rst",
            category="{root}",
            subcategory="tables",
            labels=title_of("tables"),
        ),
        md="results/{root}/tables/{table}.md",
        tex="results/{root}/tables/{table}.tex",
    params:
        command=copies("tables"),
    localrule: True
    message:
        "results/{wildcards.root}: table {wildcards.table}"
    shell:
        "{params.command}"


rule show_figure:
    """A figure where people look for it."""
    input:
        before_copies("figures"),
    output:
        svg=report(
            "results/{root}/figures/{figure}.svg",
            caption="../captions/figure.rst",
            category="{root}",
            subcategory="figures",
            labels=title_of("figures"),
        ),
        png="results/{root}/figures/{figure}.png",
        pdf="results/{root}/figures/{figure}.pdf",
        csv="results/{root}/figures/{figure}.csv",
    params:
        command=copies("figures"),
    localrule: True
    message:
        "results/{wildcards.root}: figure {wildcards.figure}"
    shell:
        "{params.command}"


rule show_study:
    """A study's page and numbers where people look for them, and the index from its ids to the store."""
    input:
        before_copies("study"),
    output:
        page=report(
            "results/{root}/report.html",
            caption="../captions/page.rst",
            category="{root}",
            labels={"study": "{root}", "shows": "the whole study on one page"},
        ),
        metrics="results/{root}/metrics.json",
        headline="results/{root}/headline.json",
        accuracy="results/{root}/plots/accuracy.csv",
        curves="results/{root}/plots/curves.csv",
        index="results/{root}/index.csv",
    params:
        command=copies("study"),
    localrule: True
    message:
        "results/{wildcards.root}: page, numbers, index"
    shell:
        "{params.command}"


rule labels:
    """The suspect labels of one run as a page to decide in. A study makes them with `labels: true`."""
    input:
        lambda wc: TARGETS.before_page(page_plan("labels_page")(wc)),
    output:
        page="build/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}/labels.html",
        plan="build/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}/labels.html.plan",
    log:
        "logs/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}.log",
    resources:
        mem_mb=lambda wc, attempt: 4000 * attempt,
        runtime=60,
    params:
        plan=lambda wc: page_plan("labels_page")(wc).digest,
        command=lambda wc: shlex.join(page_plan("labels_page")(wc).arguments),
    message:
        "suspect labels of {wildcards.method} on {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}, seed {wildcards.seed}"
    shell:
        "python -m workflow_scripts.make_labels {params.command} --out {output.page:q} > {log:q} 2>&1"
        " && echo {params.plan} > {output.plan:q} && rm -f {params.mark}"


rule setting:
    """Pictures of one setting without any training: build/settings/<root>/<data set>/<noise>/<partition>/seed<n>.html."""
    input:
        lambda wc: TARGETS.before_page(page_plan("setting_page")(wc)),
    output:
        page="build/settings/{root}/{dataset}/{noise}/{partition}/seed{seed}.html",
        plan="build/settings/{root}/{dataset}/{noise}/{partition}/seed{seed}.html.plan",
    log:
        "logs/setting/{root}/{dataset}/{noise}/{partition}/seed{seed}.log",
    resources:
        mem_mb=lambda wc, attempt: 4000 * attempt,
        runtime=60,
    params:
        plan=lambda wc: page_plan("setting_page")(wc).digest,
        command=lambda wc: shlex.join(page_plan("setting_page")(wc).arguments),
    message:
        "pictures of {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}"
    shell:
        "python -m workflow_scripts.describe {params.command} --out {output.page:q} > {log:q} 2>&1"
        " && echo {params.plan} > {output.plan:q} && rm -f {params.mark}"
