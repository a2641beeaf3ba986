"""Co-teaching (Han et al., NeurIPS 2018) in federated form: two nets pick small-loss samples for each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Batch, Client, Federation, Net, State, Trained, resolve_warmup
from fednoise_core.methods.two_nets import NAMES, TwoNets
from fednoise_core.ops import losses
from fednoise_core.ops.stats import p_wrong_by_rank
from fednoise_core.settings.declare import AlsoAccepts, Rounds

ForgetRate = Annotated[
    float,
    AlsoAccepts("oracle_nominal"),
    Field(
        ge=0,
        lt=1,
        description="tau, the share forgotten. oracle_nominal: the noise setting's nominal rate, marked † in tables.",
    ),
]
Ramp = Annotated[Rounds, Field(description="T_k, rounds until the full rate, or their share; 0 = a tenth, rounded up.")]


@dataclass(frozen=True, kw_only=True)
class Coteaching(TwoNets):
    """Co-teaching (Han et al., NeurIPS 2018): two nets pick small-loss samples for each other.

    Each net is averaged on its own. The share forgotten rises over `ramp` rounds to `forget_rate`.
    """

    example: ClassVar = {"forget_rate": 0.2}
    wire: ClassVar = {"broadcast": ("one", "two", "keep"), "update": ("one", "two")}

    forget_rate: ForgetRate
    ramp: Ramp = 0
    exponent: Annotated[float, Field(gt=0, description="c of t^c.")] = 1.0

    def forget_rate_at(self, round: int) -> float:
        """Compute tau_t, the share of a batch that is forgotten (Han et al., 2018).

        Args:
            round: t, from 0.
        """
        ramp = resolve_warmup(self.train.rounds, self.ramp)
        return losses.forget_rate_at(round, self.forget_rate, ramp, self.exponent)

    def make_broadcast(self, fed: Federation, state: State) -> dict[str, Any]:
        return {**state.server, "keep": 1.0 - self.forget_rate_at(max(state.round - 1, 0))}

    def train_step(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        batch: Batch,
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
    ) -> None:
        nets = [carry[name] for name in NAMES]
        per = [self.compute_loss(net.train(t.w, batch.x, batch.drop(net, k)), batch.y) for k, t in enumerate(nets)]
        picks = [losses.small_loss_mask(loss, broadcast["keep"]) for loss in per]
        for trained, loss, pick in zip(nets, per, reversed(picks), strict=True):  # each net uses the other's selection
            trained.backward((loss * pick).sum() / pick.sum())
            trained.update(broadcast["lr"])

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by the mean loss of the two nets.

        The setting `forget_rate` determines how many samples are forgotten, but not how many labels are reported as
        wrong. The proposed label is the prediction from the sum of both nets' logits.
        """
        logits = [client.predict(broadcast[name]) for name in NAMES]
        loss = sum(losses.ce(z, client.labels) for z in logits)
        return p_wrong_by_rank(loss, self.forget_rate), (logits[0] + logits[1]).argmax(1)  # type: ignore[arg-type]
