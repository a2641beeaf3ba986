"""Write a planned run as a Flower app, with a folder for the server and one for each site.

fednoise flower-app --study quick --method fedavg --noise sym40 --partition iid --seed 0 --out federation

The names are the ids in the study's file. If the study has only one id of a kind, it may be left out. The folders have
the settings and data that the sites lack, see docs/real_federation.md.
"""

import argparse
from pathlib import Path

from fednoise_core.io import SpecError
from workflow_scripts.commands.cell import FIELDS, find_only_run
from workflow_scripts.config.project import Project
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.study import Study


def write_run(run: PlannedRun, out: Path, server: str) -> None:
    """Write the folders of a planned run.

    Args:
        run: The run. Its labels and partition must exist.
        out: The folder to write to, which must not exist.
        server: Path of the server's folder on the server's machine.

    Raises:
        SpecError: The folder exists, the inputs are missing, or the run cannot be distributed over sites.
    """
    from fednoise_core.data.arrays import Arrays
    from fednoise_core.data.partition import Partition
    from fednoise_core.flower.folders import write_app, write_folders
    from fednoise_core.noise.labels import Labels

    if missing := [plan.sums_file for plan in run.plan.inputs if not plan.is_finished]:
        raise SpecError(f"missing: {', '.join(missing)}. Make them: snakemake --cores 1 {' '.join(missing)}")
    if out.exists():
        raise SpecError(f"--out: expected a folder that does not exist, got {out}")
    arrays_file, labels_file, partition_file = (plan.main_file for plan in run.plan.inputs[:3])
    labels = Labels.load(labels_file)
    if labels.replaced is not None:
        raise SpecError(f"noise: {run.noise} replaces images, and sites keep theirs. Choose another noise")
    arrays, partition = Arrays.load(arrays_file), Partition.load(partition_file)
    write_folders(out, arrays, labels.noisy, partition, run.spec["method"], run.spec["train"], run.seed)
    write_app(out / "app", Path(server) if server else (out / "server").absolute())


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("study", *FIELDS):
        parser.add_argument(f"--{name}", required=name == "study", help=f"{name} of the run")
    parser.add_argument("--scale", default="paper", help="paper, or a file of config/scales (default: paper)")
    parser.add_argument("--out", type=Path, required=True, help="new folder to write to")
    parser.add_argument("--server", default="", help="path of the server's folder where it runs (default: in --out)")
    args = parser.parse_args(arguments)
    study = Study(Project.load(scale=args.scale), args.study)
    write_run(find_only_run(study, list(study.runs), vars(args), str(study.place.file)), args.out, args.server)
    print(f"{args.out}: app, server and the folders of the sites. Give each site its own, and to nobody else")
    return 0
