"""A table of a study: run folders in, CSV, Markdown and LaTeX out. Kinds and settings: config/schema/table.yaml."""

import argparse
from pathlib import Path

from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.report.tables import registry
from workflow_scripts.steps import common


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, type=common.json_argument, help="table spec: JSON or a JSON file")
    common.add_runs_arguments(parser)
    parser.add_argument("--name", help="the table's id, for LaTeX; default: the last part of --out-prefix")
    parser.add_argument("--out-prefix", required=True, help="path of the files to write, without the ending")
    args = parser.parse_args(argv)

    def write_table() -> str:
        prefix = args.out_prefix
        layout = registry.write_table(listed_runs(args.runs_list), args.spec, prefix, args.name or Path(prefix).name)
        return f"{prefix}.csv, .md, .tex: {len(layout.rows)} rows, {layout.width} columns"

    return common.run_step("table", write_table, args, table=[str(args.spec.get("kind"))])
