"""Noisy labels for one data set: arrays in, labels artifact out."""

from __future__ import annotations

import argparse
import sys

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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, type=common.json_argument, help="noise spec as JSON")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--arrays", required=True, help="arrays artifact of the data set")
    parser.add_argument("--partition", help="partition artifact; needed by client-level noise")
    parser.add_argument("--donor", help="arrays artifact of the data set that open-set noise takes images from")
    parser.add_argument("--out", required=True, help="labels artifact to write")
    common.add_plan_arguments(parser)
    args = parser.parse_args(argv)

    def write_labels() -> str:
        partition = Partition.load(args.partition) if args.partition else None
        labels = noise.inject(args.arrays, args.spec, args.seed, partition, args.donor)
        labels.save(args.out)
        return f"{args.out}: {len(labels.noisy)} labels, {labels.rate:.4f} wrong (asked: {labels.nominal_rate})"

    return common.run_step("noise", write_labels, lambda steps: steps.noise_entries(args.spec["kind"]), args)


if __name__ == "__main__":
    sys.exit(main())
