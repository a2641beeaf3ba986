"""FedEFC (Yu et al., 2025): after a prestop, the forward loss with a matrix that each client counts every round."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Client, Federation, FromClientState, State, Work
from fednoise_core.methods.prestop import Prestop
from fednoise_core.methods.transition import judge_by_matrix, normalise_counts, weigh_by_shares
from fednoise_core.ops import losses
from fednoise_core.ops.stats import confident_counts, with_unit_diagonal


@dataclass(frozen=True, kw_only=True)
class FedEFC(Prestop):
    """FedEFC (Yu et al., 2025): FedAvg until accuracy stops rising, then the forward loss with counted matrices.

    After the prestop, a client counts samples by given label and by the broadcast model's confident prediction in every
    round (the uncalibrated confident joint of Northcutt et al., JAIR 2021). The columns are normalised to sum 1 (Q),
    and the client trains on -log (Q p)_y. The counts stay with the client.
    """

    compensation: Annotated[
        Literal["none", "paper", "code"],
        Field(
            description="Multiply rows of counts by the client's label shares before columns are normalised. paper: "
            "use it as Q; code: transposed, as in the authors' code for MNIST and CIFAR-10 with p = .2."
        ),
    ] = "none"
    count_early: Annotated[
        bool, Field(description="Count in phase 1 too, for the diagnostics only (as in figure 2); costs predictions.")
    ] = False

    second = "corrected"

    # the client's side

    def prepare_fit(self, client: Client, broadcast: Mapping[str, Any]) -> Work | None:
        stopped = "stopped" in broadcast
        if not stopped and not self.count_early:
            return None
        client.state["counts"] = _count_confident(client.predict(broadcast["model"]), client.labels)
        return (
            Work(facts={"corrects": self.correction_matrix(client.state["counts"], client.labels)}) if stopped else None
        )

    def correction_matrix(self, counts: Tensor, y: Tensor) -> Tensor:
        """Compute the matrix T of the client's loss -log (T' p)_y.

        Args:
            counts: [K, K], given labels in rows, confident guesses in columns, the diagonal not yet filled.
            y: Given labels [n].

        Returns:
            float [K, K].
        """
        if self.compensation == "none":
            return normalise_counts(counts)
        joint = weigh_by_shares(with_unit_diagonal(counts), y)
        return joint if self.compensation == "code" else joint.T.contiguous()

    # what the engine asks

    def estimate_noise(self, fed: Federation, state: State) -> dict[str, Any]:
        """Estimate T from the latest counts of all clients.

        Counts are added up before columns are normalised. The compensation by label shares is left out, because Q
        itself is compared with the noise.
        """
        counts = self.count_early or 0 < state.notes["prestop"]["round"] < state.round
        return {"transition": FromClientState(_pool_counts)} if counts and state.round else {}

    def suspect_labels(self, client: Client, broadcast: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Score labels by Bayes' rule, with the final model and the Q that the client counts with it.

        None if the prestop rule never ended phase 1.
        """
        if "stopped" not in broadcast:
            return None
        logits = client.predict(broadcast["model"])
        return judge_by_matrix(logits, client.labels, normalise_counts(_count_confident(logits, client.labels)))


def _count_confident(logits: Tensor, y: Tensor) -> Tensor:
    """Count the confident joint [K, K] without a minimum of 1 on the diagonal.

    With this minimum at each client, the diagonal would outweigh the counts of rare classes in the sum over clients.
    """
    return confident_counts(losses.log_probs(logits).exp(), y, fill=False)


def _pool_counts(clients: Mapping[int, Mapping[str, Any]]) -> Any:
    """Compute T [K, K] from the clients' summed counts. {} if no client has counts."""
    # one client after the other, because all client states together may not fit into memory
    counts = (clients[c].get("counts") for c in sorted(clients))
    total = sum(matrix for matrix in counts if matrix is not None)
    return normalise_counts(total) if isinstance(total, Tensor) else {}
