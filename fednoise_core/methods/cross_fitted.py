"""Cross-fitted FedAvg: several models, each without a part of every client's samples, judge the given labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import SERVER, Client, EvaluatedModels, Federation, State, Work, weighted_mean
from fednoise_core.label_errors.scope import find_near_copies, measure_distances, score_scope
from fednoise_core.methods.fedavg import FedAvg, HeldOut


@dataclass(frozen=True, kw_only=True)
class CrossFitted(FedAvg):
    """Cross-fitted FedAvg: label errors are found by models that have not seen the sample.

    Every client deals its samples to folds, and equal images share one. Model k is trained by FedAvg without fold k.
    Each client keeps the predictions of all models for its samples, summed over rounds.
    """

    example: ClassVar = {"folds": 5}
    excluded_settings = ("server_lr",)  # its models are means
    wire: ClassVar = {"broadcast": ("fold", "model"), "update": ("model",)}

    folds: Annotated[int, Field(ge=2, description="k, number of models, and of parts of each client's samples.")] = 5
    skip: Annotated[int, Field(ge=0, description="First rounds whose predictions do not count.")] = 3

    # the server's side

    def init_state(self, fed: Federation) -> State:
        return State(server={"models": [fed.init_weights("model", fold) for fold in range(self.folds)]})

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        """Train each model on one cohort. After the last round all clients get the models to predict with."""
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

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {}

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        return {"global": [(SERVER, list(state.server["models"]))]}

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        """Leave the model's fold out. A model that arrives is that of the round before, and predicts first."""
        if client.round > self.skip + 1:
            self.keep_predictions(client, broadcast)
        folds = self.find_folds(client)
        return Work(samples=torch.where((folds != broadcast["fold"]) & (folds >= 0))[0])

    def find_folds(self, client: Client) -> Tensor:
        """Number of each sample's fold, int64 [n]. It is drawn when the client is asked for the first time.

        A corrected label is -1 and not trained on: else what the last list proposed would vouch for itself.
        """
        if "folds" not in client.state:
            image = client.group_images()
            count = int(image.max()) + 1
            dealt = client.numpy_rng("folds").permutation(torch.arange(count).numpy() % self.folds)
            folds = torch.from_numpy(dealt)[image].to(client.labels.device)
            client.state = {**client.state, "folds": torch.where(client.corrected, -1, folds)}
        return client.state["folds"]

    def keep_predictions(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        """Add the model's probabilities to the client's sums for those samples that it has seen, or has not."""
        w, folds = broadcast["model"], self.find_folds(client)
        logits = torch.cat([client.predict(w), client.predict(w, on="valid")])
        p = torch.softmax(logits.double(), -1)
        nowhere = folds.new_full((len(p) - len(folds),), -1)  # validation samples, which no model has seen
        folds = torch.cat([folds, nowhere])
        none = torch.zeros_like(p)
        for name, which in (("held", (folds == broadcast["fold"]) | (folds < 0)), ("seen", folds != broadcast["fold"])):
            client.state = {**client.state, name: client.state.get(name, none) + p * which[:, None]}

    def keep_distances(self, client: Client, broadcast: Mapping[str, Any]) -> None:
        """Predict with a model of the last round, and add how far samples are from each other in its features."""
        self.keep_predictions(client, broadcast)
        features = torch.cat([client.features(broadcast["model"], on=on) for on in ("train", "valid")])
        labels = torch.cat([client.labels, client.labels.new_full((len(features) - client.n,), -1)])
        distances = torch.stack(measure_distances(features, labels))
        client.state = {**client.state, "distances": client.state.get("distances", 0) + distances}

    def predict_held_out(self, client: Client, broadcast: Mapping[str, Any]) -> HeldOut:
        held_out, seen = (client.state[name] / client.state[name].sum(1, keepdim=True) for name in ("held", "seen"))
        mixed, (mean, nearest) = (held_out + seen) / 2, client.state["distances"]
        near_copies = find_near_copies(mean, nearest, client.net.features_size)
        return held_out, mixed, {"out_of_scope": score_scope(mean, mixed), "near_copy": near_copies}
