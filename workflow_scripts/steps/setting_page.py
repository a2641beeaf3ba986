"""A page of pictures and facts of one setting (data set, noise, partition), from its artifacts, without training."""

import argparse
from pathlib import Path

from fednoise_core.data.partition import Partition
from fednoise_core.io import open_atomic
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.pages.study_page import setting_page
from workflow_scripts.report.runs.run import Setting
from workflow_scripts.report.runs.settings import SettingArtifacts
from workflow_scripts.steps.common import add_plan_arguments, run_step


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("arrays", "labels", "partition"):
        parser.add_argument(f"--{name}", required=True, type=Path, help=f"{name} artifact (npz)")
    parser.add_argument("--donor", type=Path, help="arrays artifact that open-set noise took images from")
    parser.add_argument("--ids", default="data/noise/partition", help="shown where a spec gives no better name")
    add_plan_arguments(parser)
    parser.add_argument("--out", required=True, help="page to write")
    args = parser.parse_args(argv)

    def write_page() -> str:
        seed = int(Partition.load(args.partition).spec.get("seed", 0))
        files = {name: vars(args)[name] for name in ("arrays", "labels", "partition", "donor") if vars(args)[name]}
        setting = SettingArtifacts(Setting(*args.ids.split("/")), seed, files)
        page = setting_page(setting)
        with open_atomic(args.out) as file:
            file.write(page)
        return f"{args.out}: " + "; ".join(f"{name} {value}" for name, value in setting.facts()[:3])

    return run_step("setting_page", write_page, args, figure=SETTING_FIGURES)
