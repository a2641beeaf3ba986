"""A partition of one data set over clients: arrays in, partition artifact out."""

from fednoise_core.noise.labels import Labels
from fednoise_core.partition import registry as partition
from workflow_scripts.steps import common


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    parser = common.make_setting_parser("partition", __doc__)
    parser.add_argument("--labels", nargs="?", help="labels artifact; needed by partitions over the noisy labels")
    args = parser.parse_args(argv)

    def write_partition() -> str:
        labels = Labels.load(args.labels) if args.labels else None
        split = partition.make(args.arrays, args.spec, args.seed, labels)
        split.save(args.out)
        sizes = split.sizes
        return f"{args.out}: {split.clients} clients, {len(split.index)} samples, {sizes.min()} to {sizes.max()} each"

    return common.run_step("partition", write_partition, args, partition=[args.spec["kind"]])
