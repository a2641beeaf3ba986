"""Systematic errors are found at the right site, and none in random noise."""

import numpy as np
import pandas as pd
import pytest

from fednoise_core.label_errors.systematic import Finding, find_systematic_errors
from fednoise_core.rng import stream

K, SIZES = 6, (700, 500, 400)
SITE = np.repeat(np.arange(3), SIZES)
S = SITE == 1  # rows 700 to 1,199


def made_labels(seed: int, most: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """(classes that a model sees, labels) [n] with random noise. The model takes some of class 1 for class 0."""
    draw = stream(seed, "labels")
    clean = draw.integers(0, K, len(SITE))
    seen = np.where((clean == 1) & (draw.random(len(SITE)) < 0.3), 0, clean)
    labels = np.where(draw.random(len(SITE)) < draw.uniform(0, most, 3)[SITE], draw.integers(0, K, len(SITE)), clean)
    return seen, labels


def find(seen: np.ndarray, labels: np.ndarray, annotator: np.ndarray | None = None, **columns: object) -> list[Finding]:
    names = np.array([f"c{k}" for k in range(K)])
    rows = np.arange(len(labels))
    table = {"sample": rows, "source": rows.astype(str), "client": SITE, "site": np.array(["R", "S", "T"])[SITE]}
    table |= {"given": labels, "given_name": names[labels], "proposed": seen, "proposed_name": names[seen]}
    suspects = pd.DataFrame({**table, "verdict": "keep", "contradicts": False, "predicted": seen, **columns})
    return find_systematic_errors(suspects.sample(frac=1, random_state=0), annotator)


def plant(kind: str, labels: np.ndarray, clean: np.ndarray) -> np.ndarray:
    draw, block = stream(1, kind), np.arange(800, 900)
    y = labels.copy()
    if kind == "exchanged classes":
        y[S] = np.array([0, 1, 3, 2, 4, 5])[y[S]]
    elif kind == "permuted classes":
        y[S] = (y[S] + 1) % K
    elif kind == "labelled as another class":
        y[S & (clean == 2) & (draw.random(len(y)) < 0.5)] = 3
    elif kind == "missing class":
        y[S & (y == 2)] = 3
    elif kind == "random class":
        y[S & (clean == 2)] = draw.integers(0, K, (S & (clean == 2)).sum())
    else:
        values = {"wrong rows": draw.integers(0, K, 100), "constant rows": 4, "permuted rows": K - 1 - y[block]}
        y[block] = values.get(kind, y[block - 1])
    return y


CLASSES = {"exchanged classes": [["c2", "c3"], ["c3", "c2"]], "random class": [["c2", "c2"]]}
CLASSES |= {kind: [["c2", "c3"]] for kind in ("labelled as another class", "missing class")}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", [*CLASSES, "permuted classes"])
def test_classes_of_a_site(kind: str, ordered: bool) -> None:
    seen, labels = made_labels(0)
    labels = plant(kind, labels, seen)
    order = np.lexsort((labels, SITE)) if ordered else np.arange(len(labels))
    (finding,) = find(seen[order], labels[order])
    assert (finding["site"], finding["kind"]) == ("S", kind)
    assert finding["chance"] < 1e-6
    if kind in CLASSES:
        assert finding["classes"] == CLASSES[kind]
    if kind == "exchanged classes":
        n, k = ((S & (seen == 2)).sum(), (S & (seen == 2) & (labels == 3)).sum())
        assert f"S: {k} of {n} that look like c2 are labelled c3, " in finding["text"]


@pytest.mark.parametrize("kind", ["missing class", "labelled as another class"])
def test_one_of_three_classes(kind: str) -> None:
    """There are too few classes for a test of the pair."""
    seen, labels = (np.minimum(classes, 2) for classes in made_labels(0))
    labels[S & (seen == 2)] = 0
    labels[np.flatnonzero(S & (seen == 1))[0]] = 2 if kind == "labelled as another class" else 1
    labels[S & (seen < 2) & (labels == 2)] = 1 - seen[S & (seen < 2) & (labels == 2)] if kind == "missing class" else 2
    (finding,) = find(seen, labels)
    assert (finding["kind"], finding["classes"]) == (kind, [["c2", "c0"]])
    assert f"S: {finding['samples']} of {(S & (seen == 2)).sum()} that look like c2 are labelled c0." in finding["text"]


@pytest.mark.parametrize("kind", ["shifted rows", "wrong rows", "constant rows", "permuted rows"])
def test_a_range_of_rows(kind: str) -> None:
    seen, labels = made_labels(0)
    (finding,) = find(seen, plant(kind, labels, seen))
    assert (finding["site"], finding["kind"]) == ("S", kind)
    assert abs(int(finding["first"]) - 800) < 5
    assert abs(int(finding["last"]) - 899) < 5
    assert finding["chance"] < 1e-6
    assert finding["text"].endswith("By accident: under one in a million.")
    text = {"shifted rows": "those of the row before", "constant rows": "are c4.", "permuted rows": "c5 is labelled c0"}
    assert text.get(kind, "models contradict") in finding["text"]


def test_an_annotator_and_a_block_of_copies() -> None:
    seen, labels = made_labels(0)
    annotator = stream(0, "annotator").integers(0, 8, len(labels))
    copied = np.isin(np.arange(len(labels)), np.r_[40, 300, 1300:1330])
    chosen = S & (annotator == 7)
    labels[chosen] = np.where(stream(0, "wrong").random(chosen.sum()) < 0.6, (seen[chosen] + 2) % K, labels[chosen])
    first, second = find(seen, labels, annotator, near_copy=copied)
    assert (first["site"], first["kind"]) == ("S", "annotator")
    assert f"of {chosen.sum()} labels by annotator 7" in first["text"]
    assert (second["site"], second["kind"], second["first"], second["last"]) == ("T", "copies", "1300", "1329")
    assert find(seen, labels, near_copy=copied) == [second]


def test_random_noise_is_no_finding() -> None:
    """Neither in random order nor in lists that are sorted by label; the level is .05 for all findings together."""
    false = 0
    for seed in range(20):
        seen, labels = made_labels(seed, most=0.8)
        order = np.lexsort((labels, SITE)) if seed % 2 else np.arange(len(labels))
        annotator = stream(seed, "annotator").integers(0, 8, len(labels))
        false += bool(find(seen[order], labels[order], annotator))
    assert false <= 1


def test_without_predictions_the_verdicts_count() -> None:
    seen, labels = made_labels(0)
    labels = plant("exchanged classes", labels, seen)
    verdict = np.where(seen == labels, "keep", "wrong")
    assert find(seen, labels, predicted=-1, verdict=verdict) == find(seen, labels)
    assert find_systematic_errors(pd.DataFrame()) == []
