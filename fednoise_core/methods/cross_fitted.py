"""Cross-fitted FedAvg: several models, each trained without one part of every client's samples, find label errors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import SERVER, Client, EvaluatedModels, Federation, State, Work, weighted_mean
from fednoise_core.io import SpecError
from fednoise_core.label_errors.scope import find_near_copies, measure_distances, score_scope
from fednoise_core.methods.fedavg import FedAvg, HeldOut
from fednoise_core.ops.discriminant import add_sums, choose_ridge, fit_discriminant, sum_classes

MISLABELLED = 0.5  # share of a class with one other label above which votes are ignored, because most of them are wrong
NEARLY_ALL = 0.8  # the same if it holds for most classes, since the models may be wrong about a client
ADDED = 0.2  # smallest share of this class among the samples with that label, to exclude errors of the models


@dataclass(frozen=True, kw_only=True)
class CrossFitted(FedAvg):
    """Cross-fitted FedAvg: label errors are found by models that have not seen the sample.

    Every client assigns its samples to folds. Equal images are in the same fold, and so are the copies of a sample that
    several clients hold. Model k is trained by FedAvg without fold k. Each client stores the predictions of all models
    for its samples, summed over rounds.

    With `fit: sums` there is no training by gradient descent. The last layer of each model is a linear discriminant of
    the features, computed from sums that clients send once. The labels of a sample's nearest neighbours also count.
    """

    example: ClassVar = {"folds": 5}
    excluded_settings = ("server_lr",)  # its models are means
    wire: ClassVar = {"broadcast": ("fold", "model"), "update": ("model", "sums?")}

    fit: Annotated[
        Literal["rounds", "sums"],
        Field(description="Train models in rounds, or compute their last layer from sums of features in one round."),
    ] = "rounds"
    folds: Annotated[int, Field(ge=2, description="k, number of models, and of folds of each client's samples.")] = 5
    skip: Annotated[int, Field(ge=0, description="First rounds whose predictions do not count.")] = 3

    # the server's side

    def init_state(self, fed: Federation) -> State:
        keys = [("model",) if self.fit == "sums" else ("model", fold) for fold in range(self.folds)]
        return State(server={"models": [fed.init_weights(*key) for key in keys]})

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        """Train each model on one cohort. After the last round all clients receive the models for predictions."""
        if self.fit == "sums":
            return self.fit_sums(fed, state)
        clients, models = fed.sample_cohort(state.round, candidates=candidates), state.server["models"]
        messages = [{"model": model, "fold": fold} for fold, model in enumerate(models)]
        for fold, message in enumerate(messages):
            participants, updates = fed.fit(self, state, clients, message, tag=f"fold {fold}", **fit_options)
            if participants:
                weights = self.weigh_updates(fed, state, participants, updates)
                models[fold] = weighted_mean([update["model"] for update in updates], weights)
        if state.round == self.train.rounds:
            for fold, model in enumerate(models):
                fed.run_on_clients(state, fed.all, self.keep_distances, {"model": model, "fold": fold})
        return {"clients": len(clients)}

    def fit_sums(self, fed: Federation, state: State) -> dict[str, float]:
        """Compute the last layer of each model from the sums of all clients, in the last round."""
        if state.round < self.train.rounds:
            return {"clients": 0}
        models = state.server["models"]
        answers = fed.run_on_clients(state, fed.all, self.sum_folds, {"model": models[0]})
        folds = [
            add_sums([{name: part[fold] for name, part in answer.items()} for answer in answers])
            for fold in range(self.folds)
        ]
        if sum(bool(fold["count"].sum()) for fold in folds) < 2:
            raise SpecError("cross_fitted: fit: sums: expected clients with several samples, got one sample each")
        ridge = choose_ridge(folds)
        for number in range(self.folds):
            others = add_sums([fold for k, fold in enumerate(folds) if k != number])
            models[number] = model = models[number].clone()
            for name, part in zip(("weight", "bias"), fit_discriminant(others, ridge), strict=True):
                model[f"head.{name}"].copy_(part)
        for fold, model in enumerate(models):
            keep = self.keep_distances if fold == 0 else self.keep_predictions  # all models have the same features
            fed.run_on_clients(state, fed.all, keep, {"model": model, "fold": fold})
        return {"clients": len(fed.all)}

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {}

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        return {"global": [(SERVER, list(state.server["models"]))]}

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Leave the model's fold out. First predict with the received model, which is from the previous round."""
        if client.round > self.skip + 1:
            self.keep_predictions(client, broadcast)
        folds = self.find_folds(client)
        return Work(samples=torch.where((folds != broadcast["fold"]) & (folds >= 0))[0])

    def find_folds(self, client: Client) -> Tensor:
        """Return the fold of each sample, int64 [n]. Folds are drawn in the first call.

        Samples with a corrected label have -1 and are not trained on. Otherwise corrections would confirm themselves.
        """
        if "folds" not in client.state:
            folds = client.deal_folds(self.folds).to(client.labels.device)
            client.state = {**client.state, "folds": torch.where(client.corrected, -1, folds)}
        return client.state["folds"]

    def sum_folds(self, client: Client, broadcast: Mapping[str, Any]) -> dict[str, Tensor]:
        """Sum the features of each fold by class. float32 halves the traffic."""
        features, folds = client.features(broadcast["model"]), self.find_folds(client)
        parts = [
            sum_classes(features[folds == fold], client.labels[folds == fold], client.net.classes)
            for fold in range(self.folds)
        ]
        return {name: torch.stack([part[name] for part in parts]).float() for name in parts[0]}

    def keep_predictions(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        """Add the model's probabilities to the client's two sums: for samples it has seen, and for held-out samples."""
        w, folds = broadcast["model"], self.find_folds(client)
        logits = torch.cat([client.predict(w), client.predict(w, on="valid")])
        p = torch.softmax(logits.double(), -1)
        nowhere = folds.new_full((len(p) - len(folds),), -1)  # validation samples, which no model has seen
        folds = torch.cat([folds, nowhere])
        none = torch.zeros_like(p)
        for name, which in (("held", (folds == broadcast["fold"]) | (folds < 0)), ("seen", folds != broadcast["fold"])):
            client.state = {**client.state, name: client.state.get(name, none) + p * which[:, None]}

    def keep_distances(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        """Predict with a model of the last round, and add the distances between samples in its features."""
        self.keep_predictions(client, broadcast)
        features = torch.cat([client.features(broadcast["model"], on=on) for on in ("train", "valid")])
        labels = torch.cat([client.labels, client.labels.new_full((len(features) - client.n,), -1)])
        mean, nearest, votes = measure_distances(features, labels, client.net.classes)
        distances = client.state.get("distances", 0) + torch.stack([mean, nearest])
        client.state = {**client.state, "distances": distances, "votes": votes}

    def predict_held_out(self, client: Client, broadcast: Mapping[str, Any]) -> HeldOut:
        held_out, seen = (client.state[name] / client.state[name].sum(1, keepdim=True) for name in ("held", "seen"))
        # without votes, which would confirm systematic errors of the client, and which wrong labels make less certain
        confidence, predicted = held_out.max(1)
        if self.fit == "sums":  # votes do not include the sample's own label
            shared = find_mislabelled(predicted[: client.n], client.labels, client.net.classes)[predicted]
            votes = torch.where(shared[:, None], held_out, client.state["votes"])
            both = (held_out * votes).sqrt()
            held_out = mixed = both / both.sum(1, keepdim=True)
        else:
            mixed = (held_out + seen) / 2
        mean, nearest = client.state["distances"]
        near_copies = find_near_copies(mean, nearest, client.net.features_size)
        columns = {"out_of_scope": score_scope(mean, mixed), "near_copy": near_copies, "predicted": predicted}
        return held_out, mixed, {**columns, "confidence": confidence}


def find_mislabelled(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Find the classes that a client labels as one other class. Votes of its own samples would confirm such an error.

    Args:
        predicted: Classes predicted by the federation's models, int64 [n].
        labels: Given labels, int64 [n].
        classes: Number of classes K.

    Returns:
        bool [K]: True if more than `MISLABELLED` of the samples predicted as the class have one other label, and if
        they are more than `ADDED` of the samples with this label. If it would be True for most classes, the share must
        exceed `NEARLY_ALL`.
    """
    counts = torch.bincount(predicted * classes + labels, minlength=classes**2).view(classes, classes)
    size, labelled = counts.sum(1), counts.sum(0)
    count, label = counts.fill_diagonal_(0).max(1)
    added = count > ADDED * labelled[label]
    mislabelled = added & (count > MISLABELLED * size)
    return mislabelled if 2 * mislabelled.sum() <= classes else added & (count > NEARLY_ALL * size)
