"""Apply decisions about labels to the data they were made for: decisions.csv, which labels.html saves, and the user's
npz, CSV of labels or image folder in; the corrected npz or CSV out. The original stays as it is.

python -m workflow_scripts.apply_decisions --decisions decisions.csv --data mine.npz --out mine-corrected.npz
python -m workflow_scripts.apply_decisions --accept-all --suspects results/…/suspects.csv --data mine.npz --out …
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fednoise_core.data.corrections import Corrected, Correction, correct_files, correct_npz
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.report.suspect_files import read_decisions, read_suspects

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 0 done, 2 a file or an argument is wrong and nothing was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=Path, help="decisions.csv that the page has saved")
    parser.add_argument(
        "--accept-all", action="store_true", help="relabel every sample with the verdict wrong, without looking"
    )
    parser.add_argument("--suspects", type=Path, help="suspects.csv of the run, with --accept-all")
    parser.add_argument("--data", type=Path, required=True, help="the npz, CSV of labels, or folder above train/")
    parser.add_argument("--labels", help="array of an npz to correct; default: the given labels, else y_train")
    parser.add_argument("--out", type=Path, required=True, help="file to write: .npz for an npz, else .csv")
    args = parser.parse_args(argv)
    try:
        done = _apply(args)
    except (ArtifactError, SpecError, OSError) as error:
        print(f"apply_decisions: {error}", file=sys.stderr)
        return 2
    left, rest = done.samples - done.dropped, done.samples - done.kept - done.relabelled - done.dropped
    did = f"{done.relabelled:,} relabelled, {done.dropped:,} dropped, {done.kept:,} kept"
    print(f"{args.out}: {left:,} samples; {did}{f', {rest:,} not decided' if rest else ''}")
    for note in done.notes:
        print(f"apply_decisions: {note}", file=sys.stderr)
    return 0


def _apply(args: argparse.Namespace) -> Corrected:
    npz = args.data.suffix == ".npz"
    if not args.data.exists():
        raise ArtifactError(f"--data: {args.data} does not exist")
    if args.out.exists() and (args.out.is_dir() or args.out.samefile(args.data)):
        raise SpecError(
            f"--out: {args.out} is {'a folder' if args.out.is_dir() else 'the data itself'}; name a new file"
        )
    if args.out.suffix != (".npz" if npz else ".csv"):
        raise SpecError(f"--out: {args.out}: {args.data} becomes a file {'.npz' if npz else '.csv'}")
    wanted = _accepted(args) if args.accept_all else _decided(args)
    if npz:
        return correct_npz(args.data, args.out, wanted, args.labels)
    if args.labels:
        raise SpecError(f"--labels: {args.data} is no npz; its labels are the column label or the folders")
    return correct_files(args.data, args.out, wanted)


def _decided(args: argparse.Namespace) -> list[Correction]:
    if args.decisions is None:
        raise SpecError("--decisions decisions.csv is needed, or --accept-all with --suspects")
    if args.suspects is not None:
        raise SpecError("--suspects goes with --accept-all; without it --decisions says all")
    return [
        Correction(
            f"{args.decisions}, line {one.line}",
            *(one.source, one.given, one.given_name, one.choice, one.label, one.label_name, one.data),
        )
        for one in read_decisions(args.decisions)
    ]


def _accepted(args: argparse.Namespace) -> list[Correction]:
    """Every verdict "wrong", by its first row, which is the most suspect one; all other rows keep their label, so that
    their given labels are compared with the data, too.
    """
    if args.suspects is None:
        raise SpecError("--accept-all needs --suspects suspects.csv")
    if args.decisions is not None:
        raise SpecError("--accept-all decides everything; leave --decisions out")
    found: dict[str, Correction] = {}
    for one in read_suspects(args.suspects):
        wrong = one.verdict == "wrong"
        right = (one.proposed, one.proposed_name) if wrong else (one.given, one.given_name)
        choice, where = "relabel" if wrong else "keep", f"{args.suspects}, line {one.line}"
        found.setdefault(one.source, Correction(where, one.source, one.given, one.given_name, choice, *right))
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
