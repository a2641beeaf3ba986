# The inputs of these rules are only the missing files. A study may show thousands of finished runs, and each one would
# cost planning time. The steps read the list of all runs from a file that `params.settings` names.


rule table:
    """One table as CSV, Markdown and LaTeX."""
    input:
        runs=missing_inputs("store/tables/{where}/{digest}", "runs"),
    output:
        csv=update("store/tables/{where}/{digest}/table.csv"),
        md=update("store/tables/{where}/{digest}/table.md"),
        tex=update("store/tables/{where}/{digest}/table.tex"),
        sums=update("store/tables/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/table/{where}/{digest}.log",
    resources:
        **job_resources(4000, 60),
    params:
        settings=step_settings("store/tables/{where}/{digest}"),
        folder="store/tables/{where}/{digest}",
    message:
        "table {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps table {params.settings}"
        " --out-prefix {params.folder:q}/table --sums {output.sums:q} > {log:q} 2>&1"


rule figure:
    """One figure as SVG, PNG and PDF, and the drawn data as CSV."""
    input:
        runs=missing_inputs("store/figures/{where}/{digest}", "runs"),
        arrays=missing_inputs("store/figures/{where}/{digest}", "arrays"),
        labels=missing_inputs("store/figures/{where}/{digest}", "labels"),
        partitions=missing_inputs("store/figures/{where}/{digest}", "partitions"),
    output:
        svg=update("store/figures/{where}/{digest}/figure.svg"),
        png=update("store/figures/{where}/{digest}/figure.png"),
        pdf=update("store/figures/{where}/{digest}/figure.pdf"),
        csv=update("store/figures/{where}/{digest}/figure.csv"),
        sums=update("store/figures/{where}/{digest}/SHA256SUMS"),
    log:
        "logs/figure/{where}/{digest}.log",
    resources:
        **job_resources(4000, 60),
    params:
        settings=step_settings("store/figures/{where}/{digest}"),
        folder="store/figures/{where}/{digest}",
    message:
        "figure {wildcards.where}"
    shell:
        "python -m workflow_scripts.steps figure {params.settings}"
        " --out-prefix {params.folder:q}/figure --sums {output.sums:q} > {log:q} 2>&1"


rule metrics:
    """The few numbers that git keeps, and the CSVs that `dvc plots` draws."""
    input:
        runs=missing_inputs("store/summaries/{digest}", "runs"),
    output:
        metrics=update("store/summaries/{digest}/metrics.json"),
        headline=update("store/summaries/{digest}/headline.json"),
        accuracy=update("store/summaries/{digest}/accuracy.csv"),
        curves=update("store/summaries/{digest}/curves.csv"),
        sums=update("store/summaries/{digest}/SHA256SUMS"),
    log:
        "logs/metrics/{digest}.log",
    resources:
        **job_resources(4000, 60),
    params:
        settings=step_settings("store/summaries/{digest}"),
    message:
        "numbers of a study"
    shell:
        "python -m workflow_scripts.steps metrics {params.settings}"
        " --out {output.metrics:q} --headline {output.headline:q} --accuracy {output.accuracy:q}"
        " --curves {output.curves:q} --sums {output.sums:q} > {log:q} 2>&1"


rule study_page:
    """The page of a study: one HTML file that works offline."""
    input:
        tables=missing_inputs("store/pages/{digest}", "tables"),
        figures=missing_inputs("store/pages/{digest}", "figures"),
        runs=missing_inputs("store/pages/{digest}", "runs"),
        arrays=missing_inputs("store/pages/{digest}", "arrays"),
        labels=missing_inputs("store/pages/{digest}", "labels"),
        partitions=missing_inputs("store/pages/{digest}", "partitions"),
    output:
        page=update("store/pages/{digest}/report.html"),
        sums=update("store/pages/{digest}/SHA256SUMS"),
    log:
        "logs/study_page/{digest}.log",
    resources:
        **job_resources(8000, 60),
    params:
        settings=step_settings("store/pages/{digest}"),
    message:
        "page of a study"
    shell:
        "python -m workflow_scripts.steps study_page {params.settings}"
        " --out {output.page:q} --sums {output.sums:q} > {log:q} 2>&1"


rule show_table:
    """Copy a table to results/, where people look for it."""
    input:
        copy_inputs("tables"),
    output:
        csv=report(
            update("results/{root}/tables/{table}.csv"),
            caption="../captions/table.rst",
            category="{root}",
            subcategory="tables",
            labels=report_labels("tables"),
        ),
        md=update("results/{root}/tables/{table}.md"),
        tex=update("results/{root}/tables/{table}.tex"),
    log:
        "logs/show/{root}/tables/{table}.log",
    localrule: True
    params:
        command=copy_command("tables"),
    message:
        "results/{wildcards.root}: table {wildcards.table}"
    shell:
        "( {params.command} ) > {log:q} 2>&1"


rule show_figure:
    """Copy a figure to results/, where people look for it."""
    input:
        copy_inputs("figures"),
    output:
        svg=report(
            update("results/{root}/figures/{figure}.svg"),
            caption="../captions/figure.rst",
            category="{root}",
            subcategory="figures",
            labels=report_labels("figures"),
        ),
        png=update("results/{root}/figures/{figure}.png"),
        pdf=update("results/{root}/figures/{figure}.pdf"),
        csv=update("results/{root}/figures/{figure}.csv"),
    log:
        "logs/show/{root}/figures/{figure}.log",
    localrule: True
    params:
        command=copy_command("figures"),
    message:
        "results/{wildcards.root}: figure {wildcards.figure}"
    shell:
        "( {params.command} ) > {log:q} 2>&1"


rule show_study:
    """Copy a study's page and numbers to results/, with an index from ids to the store."""
    input:
        copy_inputs("study"),
    output:
        page=report(
            update("results/{root}/report.html"),
            caption="../captions/page.rst",
            category="{root}",
            labels={"study": "{root}", "shows": "the whole study on one page"},
        ),
        metrics=update("results/{root}/metrics.json"),
        headline=update("results/{root}/headline.json"),
        accuracy=update("results/{root}/plots/accuracy.csv"),
        curves=update("results/{root}/plots/curves.csv"),
        index=update("results/{root}/index.csv"),
    log:
        "logs/show/{root}.log",
    localrule: True
    params:
        command=copy_command("study"),
    message:
        "results/{wildcards.root}: page, numbers, index"
    shell:
        "( {params.command} ) > {log:q} 2>&1"


rule labels_page:
    """The page of a run's suspect labels. A study with `labels: true` has one for each run. `.plan`: its inputs."""
    input:
        lambda wc: exit_on_error(lambda: TARGETS.page_inputs(TARGETS.labels_page(**wc))),
    output:
        "build/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}/labels.html",
        "build/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}/labels.html.plan",
    log:
        "logs/labels_page/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}.log",
    resources:
        **job_resources(4000, 60),
    params:
        command=lambda wc: exit_on_error(lambda: TARGETS.page_command(TARGETS.labels_page(**wc))),
    message:
        "suspect labels of {wildcards.method} on {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}, seed {wildcards.seed}"
    shell:
        "( {params.command} ) > {log:q} 2>&1"


rule setting_page:
    """Pictures of one setting, without training: build/settings/<root>/<data set>/<noise>/<partition>/seed<n>.html."""
    input:
        lambda wc: exit_on_error(lambda: TARGETS.page_inputs(TARGETS.setting_page(**wc))),
    output:
        "build/settings/{root}/{dataset}/{noise}/{partition}/seed{seed}.html",
        "build/settings/{root}/{dataset}/{noise}/{partition}/seed{seed}.html.plan",
    log:
        "logs/setting_page/{root}/{dataset}/{noise}/{partition}/seed{seed}.log",
    resources:
        **job_resources(4000, 60),
    params:
        command=lambda wc: exit_on_error(lambda: TARGETS.page_command(TARGETS.setting_page(**wc))),
    message:
        "pictures of {wildcards.dataset}, {wildcards.noise}, {wildcards.partition}"
    shell:
        "( {params.command} ) > {log:q} 2>&1"
