"""labels.html: a page on which a person keeps, relabels or drops the suspect labels of a run. One file, no network.

The data of the page are JSON, which its script shows as text, never as markup. Only the script and style with the right
hashes are allowed. So a name of a class or site cannot run code.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.arrays import Arrays
from fednoise_core.html.render import json_text, render_page
from fednoise_core.io import ArtifactError, json_digest
from fednoise_core.label_errors.csv_rows import Site
from fednoise_core.label_errors.decisions import DECISIONS, LITTLE, Suspect, data_digest
from fednoise_core.label_errors.image_checks import SENT_BYTES
from fednoise_core.label_errors.scope import FAR
from fednoise_core.label_errors.systematic import Finding
from fednoise_core.label_errors.thumbnails import COLUMNS, PER_SHEET, Sheets, pack_sheets, shown_images
from fednoise_core.noise.labels import Labels
from fednoise_core.rng import stream

PER_SITE, MOST = 1000, 10_000  # suspects of one site, and of all, that a page holds: the most suspect
SHOWN = ("wrong", "check")  # verdicts on the page; samples with the verdict "keep" are only in suspects.csv
VERDICTS = (*SHOWN, "keep")
KINDS = ("contradicting copy", "blank image", "contradicting near copy", "out of scope")
CLASSLESS = (2, 4)  # kinds, from 1, without a right label: they are not relabelled with all others
RANDOM = 50  # size of the random sample of each site's labels, which gives an unbiased view


def labels_page(
    arrays: Arrays,
    labels: Labels,
    suspects: Sequence[Suspect],
    sites: Sequence[Site],
    title: str,
    *,
    summary: Mapping[str, Any],
    donor: np.ndarray | None = None,
    pictures: Any = None,
    findings: Sequence[Finding] = (),
    per_site: int = PER_SITE,
    most: int = MOST,
) -> str:
    """Make the page for review of a run's suspect labels.

    Args:
        arrays: The arrays of the run.
        labels: Its labels.
        suspects: The rows of its suspects.csv.
        sites: The rows of its sites.csv.
        title: Shown above the page.
        summary: Content of the run's summary.json.
        donor: Images of open-set noise, uint8 [n, …].
        pictures: Pictures of feature vectors, uint8 [n, H, W] or [n, H, W, 3], or `ImageFiles`.
        findings: Its systematic errors.
        per_site: Largest number of suspects of one site on the page.
        most: Largest number of suspects on the page.

    Returns:
        One HTML file.

    Raises:
        ArtifactError: The files were made for other data than `arrays` and `labels`.
    """
    _check_files(arrays, labels, suspects, sites)
    kinds = _find_kinds(suspects)
    chosen, drawn = _choose_suspects(suspects, kinds, per_site, most), _draw_samples(suspects)
    taken = {(suspect.client, suspect.sample) for suspect in chosen}
    page_rows = [
        *chosen,
        *(suspect for suspect in suspects if (suspect.client, suspect.sample) in drawn.keys() - taken),
    ]
    rows = [suspect.sample for suspect in page_rows]
    images = shown_images(arrays, labels, donor, rows) if pictures is None else (pictures[row] for row in rows)
    packed = pack_sheets(images, len(rows), max((arrays.x_train if pictures is None else pictures).shape[1:3]))
    worst_first = sorted(enumerate(sites), key=lambda pair: -_site_share(pair[1].wrong, pair[1]))
    longest = max([1.0, *(math.ceil(100 * _site_share(site.wrong_high, site)) for site in sites)])
    return render_page(
        "labels.html",
        ("page.css", "labels.css"),
        ("labels_csv.js", "labels.js"),
        folder=Path(__file__).parent,
        title=title,
        tiles=_summary_counts(sites),
        findings=[finding["text"] for finding in findings],
        sites=[_site_row(number, site, longest) for number, site in worst_first],
        longest=f"{longest:.0f}",
        accuracy=_describe_accuracy(summary, arrays.x_train.shape[1:3] == (1, 1)),
        shown=len(chosen),
        total=sum(suspect.verdict in SHOWN or suspect.sample in kinds for suspect in suspects),
        judged=len(suspects),
        per_site=per_site,
        most=most,
        random=RANDOM,
        sent=f"{SENT_BYTES * len(suspects) / 1000:,.0f}",
        data=json_text(_page_data(arrays, suspects, sites, page_rows, len(chosen), drawn, kinds, packed, title)),
        sheets=packed.texts,
    )


def _page_data(
    arrays: Arrays,
    suspects: Sequence[Suspect],
    sites: Sequence[Site],
    page_rows: Sequence[Suspect],
    listed: int,
    drawn: Mapping[tuple[int, int], int],
    kinds: Mapping[int, int],
    packed: Sheets,
    title: str,
) -> dict[str, Any]:
    """Collect the data for the page's script.

    The first `listed` rows are the suspects. The other rows are only in random samples.
    """
    number = {site.client: place for place, site in enumerate(sites)}
    return {
        "key": json_digest(title, [(suspect.sample, suspect.given, suspect.proposed) for suspect in suspects]),
        "data": data_digest(arrays.source_sha256),
        "columns": DECISIONS,
        "classes": list(arrays.names) or [str(label) for label in range(arrays.classes)],
        "sites": [[site.client, site.site] for site in sites],
        "verdicts": VERDICTS,
        "listed": listed,
        "kinds": KINDS,
        "classless": CLASSLESS,
        "rows": [
            [
                *(suspect.sample, suspect.source, number[suspect.client], suspect.given, suspect.proposed),
                *(round(suspect.p_wrong, 3), round(suspect.p_proposed, 3), VERDICTS.index(suspect.verdict)),
                *(drawn.get((suspect.client, suspect.sample), 0), kinds.get(suspect.sample, 0)),
            ]
            for suspect in page_rows
        ],
        "side": packed.side,
        "type": packed.type,
        "across": COLUMNS,
        "per": PER_SHEET,
    }


def _check_files(arrays: Arrays, labels: Labels, suspects: Sequence[Suspect], sites: Sequence[Site]) -> None:
    clients = {site.client for site in sites}
    for suspect in suspects:
        fits = (
            suspect.sample < arrays.n
            and suspect.proposed < arrays.classes
            and int(labels.noisy[suspect.sample]) == suspect.given
        )
        if not fits or arrays.source(suspect.sample) != suspect.source:
            raise ArtifactError(
                f"{suspect.where}: sample {suspect.sample} ({suspect.source}) with label {suspect.given} is not in "
                "the arrays and labels of this run; make the run again"
            )
        if suspect.client not in clients:
            raise ArtifactError(f"{suspect.where}: client {suspect.client} is not in sites.csv")


def _find_kinds(suspects: Sequence[Suspect]) -> dict[int, int]:
    """Map samples to the number of their kind in KINDS, from 1, if there is evidence besides P(wrong)."""
    kinds = {suspect.sample: 3 for suspect in suspects if suspect.near_copy}
    kinds |= {suspect.sample: 1 for suspect in suspects if suspect.contradicts}
    # after copies: CLASSLESS ones come last
    kinds |= {suspect.sample: 4 for suspect in suspects if suspect.out_of_scope > FAR}
    return kinds | {suspect.sample: 2 for suspect in suspects if suspect.blank}


def _choose_suspects(suspects: Sequence[Suspect], kinds: Mapping[int, int], per_site: int, most: int) -> list[Suspect]:
    """Choose the suspects for the page, in the order of the file, the most suspect first."""
    taken: Counter[int] = Counter()
    chosen: list[Suspect] = []
    for suspect in suspects:
        listed = suspect.verdict in SHOWN or suspect.sample in kinds
        if listed and taken[suspect.client] < per_site and len(chosen) < most:
            taken[suspect.client] += 1
            chosen.append(suspect)
    return chosen


def _draw_samples(suspects: Sequence[Suspect]) -> dict[tuple[int, int], int]:
    """Samples of each site that are drawn at random: (client, sample) -> place in the draw, from 1."""
    samples_of: dict[int, list[int]] = {}
    for suspect in suspects:
        samples_of.setdefault(suspect.client, []).append(suspect.sample)
    drawn: dict[tuple[int, int], int] = {}
    for client, samples in samples_of.items():
        taken = stream(0, "random sample", client).permutation(sorted(samples))[:RANDOM]
        drawn |= {(client, int(sample)): place for place, sample in enumerate(taken, 1)}
    return drawn


def _describe_accuracy(summary: Mapping[str, Any], is_encoded: bool) -> str:
    """Describe the accuracy of the run's models; "" if they diverged."""
    last = summary["accuracy"].get("last")
    if last is None:
        return ""
    if summary.get("test_known", True):
        return f"the accuracy is {100 * last:.1f} % on test images"
    agree = f"the models agree with {100 * last:.1f} % of the given labels that were held out"
    advice = ". With photographs a pretrained net finds more (fednoise label-study --encoder resnet18)"
    return agree if is_encoded or last >= LITTLE else agree + advice


def _site_share(count: float, site: Site) -> float:
    return count / site.samples if site.samples else 0.0


def _site_row(number: int, site: Site, longest: float) -> dict[str, Any]:
    """Make the row of a site. Its bar ends at `longest` per cent. Without an estimate, it has only the interval."""
    low, share, high = (100 * _site_share(count, site) for count in (site.wrong_low, site.wrong, site.wrong_high))
    return {
        "number": number,
        "name": site.site,
        "samples": f"{site.samples:,}",
        "wrong": f"{site.wrong:,.0f}" if site.estimated else "no estimate",
        "interval": f"{site.wrong_low:,.0f} to {site.wrong_high:,.0f}",
        "share": f"{share:.1f} %" if site.estimated else "",
        "estimated": site.estimated,
        "range": f"{low:.1f} to {high:.1f} %",
        "bar": [f"{100 * value / longest:.2f}" for value in (low, high - low, share)],
        "verdict_wrong": f"{site.verdict_wrong:,}",
        "verdict_check": f"{site.verdict_check:,}",
        "random": min(RANDOM, site.samples),
    }


def _summary_counts(sites: Sequence[Site]) -> list[tuple[str, str]]:
    """Summarise the run in numbers. The total has no interval, because the sites' intervals cannot be added."""
    estimated = [site for site in sites if site.estimated]
    samples, wrong = sum(site.samples for site in estimated), sum(site.wrong for site in estimated)
    missing = f" at {len(estimated):,} of {len(sites):,} sites" if len(estimated) < len(sites) else ""
    total = f"{wrong:,.0f} ({100 * wrong / max(samples, 1):.1f} %){missing}" if estimated else "no estimate"
    return [
        ("labels judged", f"{sum(site.samples for site in sites):,}"),
        ("wrong, estimated", total),
        ("verdict wrong", f"{sum(site.verdict_wrong for site in sites):,}"),
        ("verdict check", f"{sum(site.verdict_check for site in sites):,}"),
        ("sites", f"{len(sites):,}"),
    ]
