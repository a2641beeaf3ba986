"""Noisy labels for one data set: arrays in, labels artifact out."""

from fednoise_core.data.partition import Partition
from fednoise_core.noise import registry as noise
from workflow_scripts.steps import common


def main(argv: list[str] | None = None) -> int:
    """Run the step.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        The exit status, see `steps.common`.
    """
    parser = common.make_setting_parser("noise", __doc__)
    parser.add_argument("--partition", nargs="?", help="partition artifact; needed by client-level noise")
    parser.add_argument(
        "--donor", nargs="?", help="arrays artifact of the data set that open-set noise takes images from"
    )
    args = parser.parse_args(argv)

    def write_labels() -> str:
        partition = Partition.load(args.partition) if args.partition else None
        labels = noise.inject(args.arrays, args.spec, args.seed, partition, args.donor)
        labels.save(args.out)
        return f"{args.out}: {len(labels.noisy)} labels, {labels.rate:.4f} wrong (asked: {labels.nominal_rate})"

    return common.run_step("noise", write_labels, args, noise=[args.spec["kind"]])
