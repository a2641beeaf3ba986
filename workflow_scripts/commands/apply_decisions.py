"""Write corrected data from decisions about labels.

The inputs are decisions.csv, which labels.html saves, and the user's npz, table of labels or image folder. The output
is a corrected npz or table. The original data are not changed.

fednoise apply-decisions --decisions decisions.csv --data mine.npz --out mine-corrected.npz
fednoise apply-decisions --accept-all store/runs/…/suspects.csv --data mine.npz --out …
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from fednoise_core.io import ArtifactError, SpecError, read_texts
from fednoise_core.label_errors.corrections import correct_files, correct_npz, correct_table
from fednoise_core.label_errors.csv_rows import read_rows
from fednoise_core.label_errors.decisions import Decision, Suspect, describe_harm


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: The arguments; those of the process if left out.

    Returns:
        0 if the file was written, 2 if a file or an argument is wrong and nothing was written.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    decided = parser.add_mutually_exclusive_group(required=True)
    decided.add_argument("--decisions", type=Path, help="decisions.csv that the page has saved")
    decided.add_argument(
        "--accept-all",
        type=Path,
        help="suspects.csv of a run: relabel, without review, every verdict wrong that is in scope",
    )
    parser.add_argument("--drop", action="store_true", help="with --accept-all: drop those samples instead")
    parser.add_argument("--data", type=Path, required=True, help="the npz, CSV or Parquet file, or folder above train/")
    parser.add_argument(
        "--labels",
        help="array of an npz (default: the given labels, else y_train) or column of a table (default: label)",
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write, of the same kind; for a folder a .csv")
    args = parser.parse_args(argv)
    try:
        samples, chosen = _apply_decisions(args)
    except (ArtifactError, SpecError, OSError) as error:
        print(f"fednoise apply-decisions: {error}", file=sys.stderr)
        return 2
    count = Counter(decision.decision for decision in chosen)
    did = f"{count['relabel']:,} relabelled, {count['drop']:,} dropped, {count['keep']:,} kept"
    print(f"{args.out}: {samples - count['drop']:,} samples; {did}, {samples - len(chosen):,} not decided")
    return 0


def _apply_decisions(args: argparse.Namespace) -> tuple[int, list[Decision]]:
    """Write the corrected data. Returns the number of samples, and one decision per sample."""
    ending = args.data.suffix if args.data.suffix in (".npz", ".parquet") else ".csv"
    if not args.data.exists():
        raise ArtifactError(f"--data: {args.data} does not exist")
    if args.out.suffix != ending or args.out.is_dir() or (args.out.exists() and args.out.samefile(args.data)):
        raise SpecError(f"--out: expected a new file {ending}, got {args.out}")
    decisions = read_rows(args.decisions, Decision) if args.decisions else _accept_all(args.accept_all, args.drop)
    if not decisions:
        raise ArtifactError(f"{args.decisions or args.accept_all}: it holds no decision")
    if ending == ".npz":
        return correct_npz(args.data, args.out, decisions, args.labels)
    if ending == ".parquet" or (args.data.is_file() and "file" not in read_texts(args.data).columns):
        return correct_table(args.data, args.out, decisions, args.labels)
    if args.labels:
        raise SpecError(f"--labels: expected an npz, got {args.data}. Its labels are the column label or the folders")
    return correct_files(args.data, args.out, decisions)


def _accept_all(suspects: Path, drop: bool) -> list[Decision]:
    """Make a decision for each sample of suspects.csv: relabel, or drop, those with the verdict "wrong".

    The first row of a sample, which is the most suspect one, counts. All other samples keep their label, so that their
    given labels are also compared with the data. Samples that are out of scope or blank have no right label, and keep
    the given one unless they are dropped.
    """
    from fednoise_core.label_errors.scope import FAR  # imports torch

    decisions: dict[str, Decision] = {}
    rows = read_rows(suspects, Suspect)
    out = {
        suspect.source
        for suspect in rows
        if suspect.verdict == "wrong" and (suspect.out_of_scope > FAR or suspect.blank) and not drop
    }
    if out:
        print(f"{suspects}: {len(out):,} with the verdict wrong are out of scope or blank, and keep their label")
    accepted = [suspect for suspect in rows if suspect.verdict == "wrong" and suspect.source not in out]
    harm = describe_harm([suspect.p_wrong for suspect in accepted], [suspect.p_proposed for suspect in accepted])
    if harm and not drop:
        raise ArtifactError(f"{suspects}: {harm}, or add --drop")
    for suspect in rows:
        wrong = suspect.verdict == "wrong" and suspect.source not in out
        decision = Decision(
            where=suspect.where,
            source=suspect.source,
            given=suspect.given,
            given_name=suspect.given_name,
            decision="keep" if not wrong else "drop" if drop else "relabel",
            label=suspect.proposed if wrong and not drop else suspect.given,
            label_name=suspect.proposed_name if wrong and not drop else suspect.given_name,
        )
        decisions.setdefault(suspect.source, decision)
    return list(decisions.values())


if __name__ == "__main__":
    sys.exit(main())
