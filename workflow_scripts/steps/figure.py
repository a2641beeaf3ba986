"""A figure of a study: run folders or artifacts in; SVG, PNG, PDF, CSV out. See config/schema/figure.yaml."""

import argparse

from workflow_scripts.report.figures import draw
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.steps import common


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, type=common.json_argument, help="figure spec: JSON or a JSON file")
    common.add_runs_arguments(parser)
    parser.add_argument("--out-prefix", required=True, help="path of the files to write, without the ending")
    args = parser.parse_args(argv)

    def draw_figure() -> str:
        draw.write_figure(listed_runs(args.runs_list), args.spec, args.out_prefix)
        return f"{args.out_prefix}.svg, .png, .pdf, .csv: {args.spec['kind']}"

    return common.run_step("figure", draw_figure, args, figure=[args.spec["kind"]])
