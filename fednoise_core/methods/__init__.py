"""Methods by name.

Names map to import paths, which are imported on use. So the code hash of a run covers only the method that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import build_settings
from fednoise_core.settings.functions import import_named, resolve_kind

if TYPE_CHECKING:
    from fednoise_core.methods.fedavg import FedAvg
    from fednoise_core.settings.train import Train

__all__ = ["METHODS", "make_method", "method_class"]

METHODS: dict[str, str] = {
    "fedavg": "fednoise_core.methods.fedavg:FedAvg",
    "sce": "fednoise_core.methods.robust_losses:SCE",
    "gce": "fednoise_core.methods.robust_losses:GCE",
    "mae": "fednoise_core.methods.robust_losses:MAE",
    "label_smoothing": "fednoise_core.methods.label_smoothing:LabelSmoothing",
    "active_passive": "fednoise_core.methods.active_passive:ActivePassive",
    "mixup": "fednoise_core.methods.mixup:Mixup",
    "fedprox": "fednoise_core.methods.fedprox:FedProx",
    "feddyn": "fednoise_core.methods.feddyn:FedDyn",
    "feddyn_efc": "fednoise_core.methods.feddyn_efc:FedDynEFC",
    "moon": "fednoise_core.methods.moon:Moon",
    "feddecorr": "fednoise_core.methods.feddecorr:FedDecorr",
    "fedbn": "fednoise_core.methods.fedbn:FedBN",
    "ditto": "fednoise_core.methods.ditto:Ditto",
    "ditto_efc": "fednoise_core.methods.ditto_efc:DittoEFC",
    "fedexp": "fednoise_core.methods.fedexp:FedExP",
    "fedopt": "fednoise_core.methods.fedopt:FedOpt",
    "fednova": "fednoise_core.methods.fednova:FedNova",
    "median": "fednoise_core.methods.robust_merge:Median",
    "trimmed_mean": "fednoise_core.methods.robust_merge:TrimmedMean",
    "krum": "fednoise_core.methods.robust_merge:Krum",
    "rfa": "fednoise_core.methods.robust_merge:RFA",
    "scaffold": "fednoise_core.methods.scaffold:Scaffold",
    "lc": "fednoise_core.methods.lc:LC",
    "t_revision": "fednoise_core.methods.lc:TRevision",
    "forward_prestop": "fednoise_core.methods.forward_prestop:ForwardPrestop",
    "fedefc": "fednoise_core.methods.fedefc:FedEFC",
    "confident_prestop": "fednoise_core.methods.confident_prestop:ConfidentPrestop",
    "coteaching": "fednoise_core.methods.coteaching:Coteaching",
    "coteaching_plus": "fednoise_core.methods.coteaching_plus:CoteachingPlus",
    "rofl": "fednoise_core.methods.rofl:RoFL",
    "fedfixer": "fednoise_core.methods.fedfixer:FedFixer",
    "dividemix": "fednoise_core.methods.dividemix:DivideMix",
    "mdyr": "fednoise_core.methods.mdyr:MDYR",
    "fedlsr": "fednoise_core.methods.fedlsr:FedLSR",
    "fedmixcon": "fednoise_core.methods.fedmixcon:FedMixCon",
    "joint_optim": "fednoise_core.methods.joint_optim:JointOptim",
    "selfie": "fednoise_core.methods.selfie:Selfie",
    "fedelr": "fednoise_core.methods.fedelr:FedELR",
    "feddpcont": "fednoise_core.methods.feddpcont:FedDPCont",
    "feddiv": "fednoise_core.methods.feddiv:FedDiv",
    "fedcorr": "fednoise_core.methods.fedcorr:FedCorr",
    "fedrn": "fednoise_core.methods.fedrn:FedRN",
    "fednoro": "fednoise_core.methods.fednoro:FedNoRo",
    "fedelc": "fednoise_core.methods.fedelc:FedELC",
    "masked_optim": "fednoise_core.methods.masked_optim:MaskedOptim",
    "fedmd": "fednoise_core.methods.fedmd:FedMD",
    "feddf": "fednoise_core.methods.feddf:FedDF",
    "rhfl": "fednoise_core.methods.mutual:RHFL",
    "fedhnl": "fednoise_core.methods.mutual:FedHNL",
    "cross_fitted": "fednoise_core.methods.cross_fitted:CrossFitted",
    "centralised": "fednoise_core.methods.centralised:Centralised",
    "local": "fednoise_core.methods.local:LocalOnly",
}


def method_class(name: str) -> type[FedAvg]:
    """Import the class of a method.

    Args:
        name: A name of METHODS, or "module:Class" for your own method.

    Raises:
        SpecError: There is no such method. The message contains the nearest known name.
    """
    if not isinstance(name, str) or ":" not in name:
        return resolve_kind({"name": name}, METHODS, "method", "name")
    from fednoise_core.methods.fedavg import FedAvg

    imported = import_named(name, "method.name")
    if not (isinstance(imported, type) and issubclass(imported, FedAvg)):
        raise SpecError(f"method.name: {name!r} is not a subclass of fednoise_core.methods.fedavg.FedAvg")
    return imported


def make_method(spec: dict[str, Any], train: Train) -> FedAvg:
    """Make a method and check its settings.

    Args:
        spec: {"name": …, settings…}.
        train: The training settings.

    Raises:
        SpecError: A setting is unknown or does not fit. The message names its key.
    """
    cls = method_class(spec.get("name", ""))
    return build_settings(cls, {key: value for key, value in spec.items() if key != "name"}, "method", train=train)
