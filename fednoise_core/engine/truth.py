"""The clean labels, and the diagnostics that need them. Methods cannot access these data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fednoise_core.label_errors.estimate import WRONG, SiteLabels

DiagnosticRow = tuple[int, int, str, float]  # round, client (-1: all), metric, value (NaN: unknown or undefined)
NAN = math.nan
T_FIT = ("T_error", "T_cosine")


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    """Compute the area under the ROC curve, by ranks (Mann and Whitney, 1947).

    It is the probability that a positive scores above a negative, where ties count half.

    Args:
        score: [n].
        positive: [n], whether each is a positive.

    Returns:
        A number in 0..1, or NaN if there are only positives or only negatives.
    """
    score, positive = np.asarray(score, float), np.asarray(positive, bool)
    m, n = int(positive.sum()), int((~positive).sum())
    if not m or not n:
        return NAN
    _, inverse, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    return float((rank[inverse][positive].sum() - m * (m + 1) / 2) / (m * n))


class Truth:
    """The clean labels of a run, and the diagnostics that need them.

    Args:
        clean: [n] int64, or None if they are unknown.
        labels: The given labels [n] int64, as the clients hold them.
        rows: One index array per client.
        classes: K.
        foreign: Samples whose image was replaced (open-set noise). All their labels are wrong, and the transition
            matrix does not include them.
    """

    def __init__(
        self,
        clean: np.ndarray | None,
        labels: np.ndarray,
        rows: list[np.ndarray],
        classes: int,
        foreign: np.ndarray | None = None,
    ):
        self.clean, self.labels, self.rows, self.classes = clean, np.asarray(labels), rows, classes
        if clean is not None and foreign is not None:
            self.clean = clean.copy()
            self.clean[foreign] = -1  # unlike every label

    def _noise_rate(self, labels: np.ndarray, rows: np.ndarray) -> float:
        return NAN if self.clean is None or not len(rows) else float((labels != self.clean[rows]).mean())

    def label_noise(self, round: int) -> list[DiagnosticRow]:
        """Measure the noise rate of the given labels.

        Returns:
            Rows of `noise_rate`: over all held samples (client -1), and per client.
        """
        out = [(round, c, "noise_rate", self._noise_rate(self.labels[r], r)) for c, r in enumerate(self.rows)]
        rows = np.concatenate(self.rows) if self.rows else np.zeros(0, int)
        return [(round, -1, "noise_rate", self._noise_rate(self.labels[rows], rows)), *out]

    def target_noise(self, round: int, targets: Mapping[int, np.ndarray]) -> list[DiagnosticRow]:
        """Measure the noise rate of the targets after relabelling.

        Args:
            round: The last round.
            targets: Targets [n] or [n, K] of the clients that relabelled.

        Returns:
            Rows of `target_noise_rate`: over all held samples (client -1), and per relabelled client.
        """
        if not targets:
            return []
        labels = [t if (t := targets.get(c)) is not None else self.labels[r] for c, r in enumerate(self.rows)]
        hard = [x.argmax(1) if x.ndim == 2 else x for x in labels]
        out = [(round, c, "target_noise_rate", self._noise_rate(hard[c], self.rows[c])) for c in sorted(targets)]
        all_targets, rows = np.concatenate(hard), np.concatenate(self.rows)
        return [(round, -1, "target_noise_rate", self._noise_rate(all_targets, rows)), *out]

    def suspects(self, round: int, sites: Sequence[SiteLabels]) -> list[DiagnosticRow]:
        """Measure how well the suspects match the wrong labels.

        Suspects are the samples with P(wrong) above 1/2.

        Returns:
            Rows of precision, recall and AUROC, or [] if no site has estimates.
        """
        if not sites:
            return []
        if self.clean is None:
            return [(round, -1, "suspects_precision", NAN), (round, -1, "suspects_recall", NAN)]
        sample, p_wrong = (np.concatenate([getattr(site, name) for site in sites]) for name in ("samples", "p_wrong"))
        wrong = self.labels[sample] != self.clean[sample]
        named = p_wrong > WRONG
        hit = float((wrong & named).sum())
        return [
            (round, -1, "suspects_precision", hit / named.sum() if named.any() else NAN),
            (round, -1, "suspects_recall", hit / wrong.sum() if wrong.any() else NAN),
            (round, -1, "suspects_auroc", auroc(p_wrong, wrong)),
        ]

    def estimates(self, round: int, estimates: Mapping[str, Any]) -> list[DiagnosticRow]:
        """Measure the errors of a method's estimates.

        Args:
            round: The round.
            estimates: Any of these entries. "client_noise" {client: score}: AUROC for detection of clients with noise,
                undefined if all or no clients have noise. "label_prior" [K]: L1 distance to the class shares of all
                given labels of the clients. "transition" [K, K] or {client: [K, K]}: half the mean L1 distance of a row
                to the realised T, over the present classes, and the cosine of both matrices (Yu et al., 2025, fig. 2).

        Returns:
            Diagnostic rows. Client -1 is the whole federation.
        """
        out: list[DiagnosticRow] = []
        if "label_prior" in estimates:
            labels = self.labels[np.concatenate(self.rows)]
            true = np.bincount(labels, minlength=self.classes) / max(len(labels), 1)
            out.append((round, -1, "prior_error", float(np.abs(np.asarray(estimates["label_prior"]) - true).sum())))
        if "client_noise" in estimates:
            clients = [c for c in estimates["client_noise"] if len(self.rows[c])]
            noisy = [self._noise_rate(self.labels[self.rows[c]], self.rows[c]) for c in clients]
            value = (
                NAN
                if self.clean is None
                else auroc(np.array([estimates["client_noise"][c] for c in clients]), np.array(noisy) > 0)
            )
            out.append((round, -1, "noisy_client_auroc", value))
        if "transition" in estimates:
            transition = estimates["transition"]
            per = transition if isinstance(transition, Mapping) else {-1: transition}
            fits = []
            for c, T in sorted(per.items()):
                rows = self.rows[c] if c >= 0 else np.concatenate(self.rows)
                fits.append(self._transition_fit(np.asarray(T), rows))
                if c >= 0:
                    out += [(round, c, name, value) for name, value in zip(T_FIT, fits[-1], strict=True)]
            means = np.mean(fits, 0) if fits else (NAN, NAN)
            out += [(round, -1, name, float(value)) for name, value in zip(T_FIT, means, strict=True)]
        return out

    def _transition_fit(self, T: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
        """Compute half the mean L1 distance of a row to the realised T, and the cosine, over the present classes."""
        rows = rows if self.clean is None else rows[self.clean[rows] >= 0]
        if self.clean is None or not len(rows):
            return NAN, NAN
        joint = np.zeros((self.classes, self.classes))
        np.add.at(joint, (self.clean[rows], self.labels[rows]), 1.0)
        there = joint.sum(1) > 0
        real, estimate = joint[there] / joint[there].sum(1, keepdims=True), T[there]
        cosine = float((estimate * real).sum() / max(np.linalg.norm(estimate) * np.linalg.norm(real), 1e-8))
        return float(np.abs(estimate - real).sum(1).mean() / 2), cosine
