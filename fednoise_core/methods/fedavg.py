"""FedAvg (McMahan et al., AISTATS 2017), the base class of all methods. It implements a round."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import (
    SERVER,
    Client,
    EvaluatedModels,
    Federation,
    Local,
    Phase,
    State,
    Train,
    weighted_mean,
)
from fednoise_core.io import SpecError
from fednoise_core.settings.train import ValidatedSettings, public_functions

HeldOut = tuple[Tensor, Tensor, Mapping[str, Tensor]]  # of `predict_held_out`


@dataclass(frozen=True, kw_only=True)
class FedAvg(Local, ValidatedSettings):
    """FedAvg (McMahan et al., AISTATS 2017): mean of the cohort's models.

    It is the base class of all methods. A method overrides the hooks in which it differs. Besides its settings, a class
    may define these attributes.

    Attributes:
        example: Settings of the example on the reference page.
        family: Approach to label noise, which selects the colour in figures: "server-side", "loss", "selection",
            "correction", "transition" or "personal".
        needs_public: Whether the data set must have a `public` part.
        several_nets: Whether `train.net` may be a list.
        pooled: Whether one client holds all samples, as in training without a federation.
        answers_nan: Whether client-side functions may return NaN, for example for a class that the client lacks.
        above_chance: {setting: other}. The setting must exceed 1/K unless the other setting is given.
        needs_train: {setting: values}. The only values of that training setting that the method supports.
        wire: Names of the values in the "broadcast" to a client, its "update", and its "relay" to other clients.
    """

    place = "method"
    example: ClassVar[dict[str, Any]] = {}
    family: ClassVar[str] = "server-side"
    needs_public: ClassVar[bool] = False
    several_nets: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    answers_nan: ClassVar[bool] = False
    above_chance: ClassVar[dict[str, str]] = {}
    wire: ClassVar[Mapping[str, tuple[str, ...]]] = {"broadcast": ("model",), "update": ("model",)}

    train: Train
    weighting: Annotated[
        Literal["samples", "uniform"], Field(description="Aggregation weights: by samples, or equal.")
    ] = "samples"
    server_lr: Annotated[float, Field(gt=0, description="eta_g; 1 is plain averaging.")] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_hooks(type(self))

    # the server's side

    def init_state(self, fed: Federation) -> State:
        """Make the state before the first round.

        Returns:
            A State whose `server` holds the new model, as "model".
        """
        return State(server={"model": fed.init_weights("model")})

    def list_phases(self, fed: Federation) -> list[Phase]:
        """List the phases of a run, in order.

        The default is one phase of `train.rounds` rounds.
        The last `end` is the number of rounds of the run.
        """
        return [Phase("train", self.run_round, self.train.rounds)]

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        """Collect the values that the server sends to all clients at the start of a round.

        Returns:
            Values by name. Default: the model, as "model".
        """
        return {"model": state.server["model"]}

    def run_round(
        self, fed: Federation, state: State, candidates: Iterable[int] | None = None, **fit_options: Any
    ) -> dict[str, float] | None:
        """Sample a cohort, fit its clients and merge their updates.

        Args:
            fed: The federation.
            state: The run's state, which is changed in place.
            candidates: Clients to sample from. Default: all.
            **fit_options: Options of `fed.fit`. With `local`, that Local is trained instead of the method itself.

        Returns:
            Metrics of the round, by name.
        """
        clients = fed.sample_cohort(state.round, candidates=candidates)
        local = fit_options.pop("local", self)
        clients, updates = fed.fit(local, state, clients, self.make_broadcast(fed, state), **fit_options)
        if clients:  # the list is empty if no update was finite, which the engine reports
            self.merge_updates(fed, state, clients, updates)
        return {"clients": len(clients)}

    def weigh_updates(
        self, fed: Federation, state: State, clients: list[int], updates: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        """Weigh the clients of a merge.

        Args:
            fed: The federation.
            state: The run's state.
            clients: The clients whose updates arrived.
            updates: Their updates, for methods whose weights depend on them.

        Returns:
            One weight per client, not yet normalised.
        """
        return [float(fed.sizes[c]) if self.weighting == "samples" else 1.0 for c in clients]

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        """Merge the clients' updates into `state.server`.

        The default is the weighted mean of their models, or a step of length server_lr towards it.
        Running statistics are always averaged.
        """
        new = weighted_mean([update["model"] for update in updates], self.weigh_updates(fed, state, clients, updates))
        if self.server_lr != 1.0:  # not for running statistics: a longer step could make a variance negative
            old = state.server["model"].trained
            new.trained.copy_(old + (new.trained - old) * self.server_lr)
        state.server["model"] = new

    # what the engine asks

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        """List the models to evaluate.

        Returns:
            The members of each view, as (client or SERVER, model). `model` is one model, several models whose logits
            are summed, or the name of an entry of the client state. The first view is the headline.
        """
        return {"global": [(SERVER, state.server["model"])]}

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        """Report the method's estimates of the noise, for diagnostics.

        Returns:
            Any of the entries that `engine.truth.Truth.estimates` compares with the truth. See there for the shapes.
        """
        return {}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score the client's given labels at the end of the run, on the client.

        Only the order of the scores is used. The number of wrong labels at a site is estimated from the headline model
        (`label_errors.estimate.estimate_label_errors`), in the same way for all methods.

        Returns:
            P(given label is wrong) [n], or any score that is higher for more suspect labels, and the proposed labels
            [n]. None if the method has no better scores than those of its headline model.
        """
        return None

    def predict_held_out(self, client: Client, broadcast: Mapping[str, Any]) -> HeldOut | None:
        """Predict the client's own samples at the end of the run, on the client.

        The rows are the training samples, then the validation samples. If a method returns predictions,
        `label_errors.estimate.estimate_held_out` estimates the label errors, and `suspect_labels` is not called.

        Returns:
            Probabilities [n, K] by models that have not seen the sample, probabilities [n, K] by all models, and
            further columns of suspects.csv, each [n]. None if there are no such models. If the first probabilities also
            come from votes of the client's own samples, a column `confidence` is needed, which is not written: the
            confidence of the models alone.
        """
        return None


def check_hooks(cls: type[FedAvg]) -> None:
    """Check that a class which defines public functions overrides at least one hook.

    Raises:
        SpecError: It overrides no hook.
    """
    hooks = {name for base in (Local, FedAvg) for name in public_functions(base)}
    functions = {name for base in cls.__mro__ if not issubclass(FedAvg, base) for name in public_functions(base)}
    if functions and not functions & hooks:
        raise SpecError(
            f"method: {cls.__name__}: it overrides none of the hooks, so nobody calls "
            f"{', '.join(sorted(functions))}; the hooks are {', '.join(sorted(hooks))}"
        )
