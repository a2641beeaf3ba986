"""Facts about single methods for the tests of all methods: settings on the toy world, and unusual traffic."""

from typing import Any

from fednoise_core.methods import method_class

# Settings under which three short rounds on the toy world use all parts of the method.
FIELDS: dict[str, dict[str, Any]] = {
    "confident_prestop": {"latest": 2},  # stopped after the second round, pruned in the third
    "coteaching": {"forget_rate": 0.4, "ramp": 2},
    "coteaching_plus": {"forget_rate": 0.4, "ramp": 2, "warmup": 1},
    "cross_fitted": {"skip": 1},
    "dividemix": {"warmup": 1, "ramp": 2, "unlabelled": 5.0},
    "fedcorr": {"iterations": 1, "tune_rounds": 1, "full_rounds": 1, "relabel": 1.0, "confidence": 0.25},
    "feddf": {"public": 6, "distil_batch": 4},
    "feddiv": {"warmup": 1, "settle": 1},
    "feddpcont": {"keep": 0.6},
    "feddyn": {"alpha": 0.1},
    "feddyn_efc": {"mu": 0.01},
    "fedefc": {"latest": 2},
    "fedfixer": {"warmup": 1, "strength": 0.5},
    "fedhnl": {"pretrain": 2, "public_batch": 4},
    "fedlsr": {"ramp": 2},  # the weight of the agreement rises from 0 over half to all
    "fedmd": {"pretrain": 2, "public": 6},
    "fedmixcon": {"ramp": 2},
    "fednoro": {"ramp_to": 3},
    "fedprox": {"mu": 0.1},
    "fedrn": {"warmup": 1, "neighbours": 2},
    "forward_prestop": {"latest": 2, "percentile": 80.0},
    "joint_optim": {"warmup": 1},
    "krum": {"faulty": 0.25, "average": 2},
    "lc": {"switch": 1, "confidence": 0.3},
    "local": {"pretrain": 2},
    "mdyr": {"warmup": 1},
    "rhfl": {
        "pretrain": 2,
        "public": 6,
        "public_batch": 4,
        "kl": "reverse",
        "denominator": "abs",
        "normalise": "sum",
        "confidence_ce": 0.4,
        "confidence_rce": 0.9,
        "fresh_optimizer_per_batch": True,
    },
    # features pulled from the second round on, labels replaced in the third
    "rofl": {"forget_rate": 0.4, "ramp": 2, "label_rounds": 2, "centroid": 0.1, "entropy": 0.1},
    "selfie": {"noise_rate": 0.4, "warmup": 1, "memory": 2, "uncertainty": 0.5},
    # two plain rounds, after which there is something to estimate from, and the revision
    "t_revision": {"switch": 2, "revise": 2, "revision_lr": 0.01},
    "trimmed_mean": {"trim": 0.25},
}

MODEL = 4 * (64 * 6 + 6 + 6 * 5 + 5)  # bytes of the toy's perceptron
CNN = 4 * (2 * 9 + 2 + 4 * 2 * 9 + 4 + 6 * 4 * 2 * 2 + 6 + 5 * 6 + 5)  # of its convolutional net
NUMBERS = ("bootstrap", "correct", "disagree", "divide", "keep", "ramp", "relabel", "steps", "unlabelled")
SIZES = {
    **dict.fromkeys(["model", "one", "two", "control", "shift"], MODEL),  # as large as the model
    **dict.fromkeys(NUMBERS, 8),
    "centroids": 4 * 5 * 6,  # 5 classes, 6 features
    "selected": 4,
}


def traffic(name: str, run: Any) -> list[tuple[int, int]]:
    """Bytes (down, up) of round 0 (what `init_state` exchanged) and of every round, worked out by hand: 4 clients a
    round of 7 with samples, 5 classes. By default every round sends all that `wire` names, but what is optional
    (`name?`).
    """
    if name in UNUSUAL:
        expected = UNUSUAL[name]
        return expected(run) if callable(expected) else expected
    wire = method_class(name).wire
    down, up = (sum(SIZES[key] for key in wire[side] if not key.endswith("?")) for side in ("broadcast", "update"))
    return [(0, 0)] + [(4 * down, 4 * up)] * 3


def _cross_fitted(run: Any) -> list[tuple[int, int]]:
    """Five models, each with the number of its fold; after the last round once more to all."""
    down, up = 4 * 5 * (MODEL + 8), 4 * 5 * MODEL
    return [(0, 0), (down, up), (down, up), (down + 7 * 5 * (MODEL + 8), up)]


def _fedcorr(run: Any) -> list[tuple[int, int]]:
    noisy = len(run.summary["notes"]["noisy"])
    clean = sum(level <= 0.1 for c, level in enumerate(run.summary["notes"]["level"]) if c != 2)
    return [
        (0, 0),
        (7 * (MODEL + 4) + noisy * MODEL, 7 * (MODEL + 8) + noisy * 16),  # LID, then level and count up
        (min(4, clean) * MODEL,) * 2,
        (noisy * MODEL + 4 * MODEL, noisy * 8 + 4 * MODEL),
    ]


def _feddf(run: Any) -> list[tuple[int, int]]:
    """Clients of even number run the perceptron, the others the convolutional net; distillation sends nothing."""
    cohorts = [run.outcome.fed.sample_cohort(r) for r in (1, 2, 3)]
    return [(0, 0)] + [(sum(CNN if c % 2 else MODEL for c in clients),) * 2 for clients in cohorts]


def _fednoro(run: Any) -> list[tuple[int, int]]:
    """After one round of warm-up the search: once the model to all, a loss for each class up; then the verdicts."""
    noisy = set(run.summary["notes"]["noisy"])
    second, third = (4 * MODEL + 8 * len(noisy & set(run.outcome.fed.sample_cohort(r))) for r in (2, 3))
    return [(0, 0), PLAIN, (second + 7 * MODEL, 4 * MODEL + 7 * 5 * 4), (third, 4 * MODEL)]


def _fedrn(run: Any) -> list[tuple[int, int]]:
    """A round: the model down; up the model, which is handed on, too, an accuracy and 5 logits. With neighbours also
    two models down, three scores and whether they were asked; those that have not trained before get the model twice.
    """
    first, second, third = (set(run.outcome.fed.sample_cohort(r)) for r in (1, 2, 3))
    new = len(second - first), len(third - first - second)
    up, asked = 4 * (MODEL + 8 + 20), 4 * (MODEL + 2 * MODEL + 24 + 8)
    return [(7 * 4 * 64, 0), (4 * MODEL, up), *((asked + n * MODEL, up) for n in new)]  # first the image of noise


PLAIN = (4 * MODEL, 4 * MODEL)
FIRST = (4 * MODEL, 4 * (MODEL + 4))  # the model and an accuracy, before a prestop
TO_ALL = (7 * MODEL + 4 * MODEL, 4 * MODEL)  # once the model to all, who answer nothing
UNUSUAL: dict[str, Any] = {
    "centralised": [(0, 72 * (64 + 8)), *[(0, 0)] * 3],  # images of 8 x 8 bytes and labels of 8, once
    "confident_prestop": [(0, 0), FIRST, FIRST, (4 * (MODEL + 8), 4 * (MODEL + 8))],  # the end of phase 1, samples kept
    "cross_fitted": _cross_fitted,
    "fedcorr": _fedcorr,
    "feddf": _feddf,
    # weights, means and variances of two components, both ways
    "feddiv": [(0, 0), PLAIN, *[(4 * (MODEL + 6 * 8),) * 2] * 2],
    "feddpcont": [(7 * (8 + 5 * 4), 7 * 5 * 8), *[PLAIN] * 3],  # once epsilon, a histogram and the prior
    "fedefc": [(0, 0), FIRST, FIRST, (4 * (MODEL + 8), 4 * MODEL)],
    "fedelc": _fednoro,
    "fedhnl": [(0, 0), (0, 0), *[(4 * 10 * 5 * 4, 4 * (8 + 10 * 5 * 4))] * 3],  # 10 images, 5 probabilities, a loss
    "fedmd": [(0, 0), (0, 0), *[(4 * (6 * 8 + 6 * 5 * 4), 4 * 6 * 5 * 4)] * 3],  # numbers, logits of 6 public images
    "fednoro": _fednoro,
    "masked_optim": _fednoro,
    "fedrn": _fedrn,
    "forward_prestop": [(0, 0), FIRST, FIRST, (4 * (MODEL + 8), 4 * MODEL)],
    "lc": [(0, 0), PLAIN, TO_ALL, PLAIN],
    "local": [(0, 0)] * 5,
    # which 6 images; for each 5 log-probabilities, and with each of 2 batches their weight. Up: a loss, 5 of each image
    "rhfl": [(0, 0), (0, 0), *[(4 * (6 * 8 + 6 * 5 * 4 + 2 * 4), 4 * (8 + 6 * 5 * 4))] * 3],
    "t_revision": [(0, 0), PLAIN, PLAIN, TO_ALL],
}
