"""World: the arrays of one run, as tensors.

It is private to the engine. Server code of a method sees a Federation, and client-side code sees a Client. The world
holds only the given labels. The clean labels are in `truth.py`, which methods cannot access.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine.pool import Pool
from fednoise_core.io import SpecError
from fednoise_core.nets import build_net
from fednoise_core.nets.net import Net
from fednoise_core.rng import stream_key, torch_stream
from fednoise_core.settings.train import Train

SERVER = -1  # the client number under which the server trains or is evaluated


@contextlib.contextmanager
def torch_switches(threads: int) -> Iterator[None]:
    """Set torch's and numpy's global options for this thread, and restore them. Processes started inside inherit them.

    Options of the caller, such as autocast, no_grad or a default device, have no effect inside. Denormal numbers are
    flushed to zero, because weights that decay to denormal numbers would slow down every kernel.
    """
    before = torch.get_num_threads()
    device, kind = torch.get_default_device(), torch.get_default_dtype()
    flushes = (torch.tensor(1e-310, dtype=torch.float64, device="cpu") * 1.0).item() == 0
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if kind != torch.float32:
        torch.set_default_dtype(torch.float32)
    try:
        with (
            # a device context intercepts every call of torch, which takes time
            contextlib.nullcontext() if device.type == "cpu" else torch.device("cpu"),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
            torch.inference_mode(False),
            torch.enable_grad(),
            np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"),  # numpy's defaults
        ):
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushes)
        if kind != torch.float32:
            torch.set_default_dtype(kind)


class World:
    """Pools, given labels, the samples of each client, the nets, and the run's random streams.

    With `pooled`, one client holds the samples of all clients, each sample once. A sample that any client trains on is
    then not used for validation.

    Attributes:
        pooling_bytes: Bytes of the images and labels that clients send for pooling, 0 without pooling.
        cohorts: Function of (number of clients, cohort size) that yields the cohort of each round. If it is None, each
            cohort is drawn from the run's random stream of its round.
        samples_a_round: Samples of a cohort of average clients in FedAvg, pooled or not. It is the unit of work.
    """

    def __init__(
        self,
        arrays: Arrays,
        labels: np.ndarray,
        partition: Partition,
        train: Train,
        seed: int,
        device: torch.device | str = "cpu",
        cohorts: Callable[[int, int], Iterator[list[int]]] | None = None,
        pooled: bool = False,
    ):
        self.train, self.seed, self.device, self.cohorts = train, int(seed), torch.device(device), cohorts
        self.classes = int(arrays.classes)
        self.pools = {"train": Pool(arrays.x_train, arrays.mean, arrays.std, self.device)}
        if arrays.x_public is not None and len(arrays.x_public):
            self.pools["public"] = Pool(arrays.x_public, arrays.mean, arrays.std, self.device)
        self.labels = torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64)).to(self.device)  # [n]
        self.first = self.labels  # labels as first given, before corrections; label errors are estimated from these
        if arrays.first is not None:
            changed = arrays.first != arrays.y_train
            self.first = torch.from_numpy(np.where(changed, arrays.first, labels).astype(np.int64)).to(self.device)
        self.n = partition.clients
        index, offsets = np.asarray(partition.index), np.asarray(partition.offsets)
        validation = np.zeros(len(index), bool) if partition.valid is None else np.asarray(partition.valid, bool)
        owner = np.repeat(np.arange(self.n), np.diff(offsets))
        self.index, self.valid = (self.split_by_client(index[rows], owner[rows]) for rows in (~validation, validation))
        held_by = [len(i) for i in self.index if len(i)]
        self.samples_a_round = min(self.cohort, len(held_by)) * sum(held_by) / max(len(held_by), 1)
        self.pooling_bytes = 0
        self._pieces: list[Tensor] = []  # samples of each site, if they are pooled
        if pooled:
            self._pool_clients(arrays.x_train[:1].nbytes)
        self.sizes = [len(i) for i in self.index]
        self.max_label_copies = int(
            np.bincount(index[~validation]).max(initial=0)
        )  # clients that hold the same sample, at most
        shape = self.pools["train"].shape
        nets = train.net if isinstance(train.net, list) else [train.net]
        self.nets = [build_net(spec, shape, self.classes) for spec in nets]
        if self.device.type != "cpu":  # fp32 means no TF32; the option of torch is global for the process
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = train.precision != "fp32"

    def split_by_client(self, rows: np.ndarray, owner: np.ndarray) -> list[Tensor]:
        """Split `rows` into each client's part, as views of one tensor.

        Separate tensors would have more overhead than content, and would need one transfer each on a GPU.

        Args:
            rows: Sample positions, ordered by client.
            owner: The client of each position.

        Returns:
            int64 tensors on the run's device.
        """
        samples = torch.from_numpy(rows.astype(np.int64)).to(self.device)
        return list(samples.split(np.bincount(owner, minlength=self.n).tolist()))

    @property
    def cohort(self) -> int:
        """m, the number of clients in a round's cohort."""
        return max(1, int(self.train.fraction * self.n + 1e-9))

    def _pool_clients(self, image: int) -> None:
        """Combine all clients into one. `image` is the size of an image in bytes. Overlapping clients send copies."""
        self.pooling_bytes = sum(map(len, self.index)) * (image + self.labels.element_size())
        self._pieces = [torch.cat(parts_of_client) for parts_of_client in zip(self.index, self.valid, strict=True)]
        train, valid = (torch.cat(parts).unique() for parts in (self.index, self.valid))
        self.n, self.index, self.valid = 1, [train], [valid[~torch.isin(valid, train)]]

    def split_by_site(self, client: int) -> list[tuple[int, Tensor]]:
        """Split the samples of a client by site.

        A site is a client of the partition. Without pooling it is the client itself. With pooling, the one client has
        all sites.

        Returns:
            (site, positions). Positions count the client's training samples first, then its validation samples.
        """
        samples = torch.cat([self.index[client], self.valid[client]])
        if not self._pieces:
            return [(client, torch.arange(len(samples), device=samples.device))]
        place = torch.empty(len(self.labels), dtype=torch.int64, device=samples.device)
        place[samples] = torch.arange(len(samples), device=samples.device)
        return [(site, place[rows]) for site, rows in enumerate(self._pieces) if len(rows)]

    def net(self, client: int) -> Net:
        """Look up the architecture that a client runs.

        Client c runs net number c mod (number of nets).
        The server runs the first.
        """
        return self.nets[0 if client == SERVER else client % len(self.nets)]

    def random_stream(self, *key: str | int) -> torch.Generator:
        """Make the run's random stream for these words, a torch CPU generator.

        The same words give the same stream again. So callers add the round and the client where streams must differ.
        The words determine the results, because another word changes every number that is drawn.
        """
        return torch_stream(self.seed, *key)

    def rows(self, client: int, on: str) -> Tensor:
        """List the positions in the pool that `client` may use under the name `on`.

        Raises:
            SpecError: The data set has no such pool.
        """
        if on == "train":
            return self.index[client]
        if on == "valid":
            return self.valid[client]
        if on not in self.pools:
            raise SpecError(f"this run has no pool {on!r}: give the data set a `public` part")
        return torch.arange(self.pools[on].n, device=self.device)

    def pool(self, on: str) -> Pool:
        """Look up the images behind the name `on`.

        Args:
            on: "train", "valid" (of the same pool) or "public".
        """
        return self.pools["train" if on == "valid" else on]

    @torch.inference_mode()
    def evaluate(self, net: Net, w: Any, pool: Pool, rows: Tensor, output: str = "predict") -> Tensor:
        """Evaluate a model in chunks, in evaluation mode.

        Args:
            net: The architecture.
            w: Its weights.
            pool: Images.
            rows: Positions in the pool [n].
            output: "predict" for logits, "features" for the penultimate features.

        Returns:
            float32 [n, K] or [n, d].
        """
        out, key = [], stream_key(self.seed, "dropout at evaluation")
        use_bf16 = self.train.eval_precision == "bf16"
        for k, x in enumerate(pool.chunks(rows, self.train.eval_batch)):
            u = None
            if net.eval_draws:  # every caller gets the same numbers for the same chunk
                u = torch.rand(len(x), net.eval_draws, generator=torch_stream(key, k)).to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=use_bf16):
                values = getattr(net, output)(w, x, u=u)
            out.append(values.float() if use_bf16 else values)
        width = self.classes if output == "predict" else net.features_size
        return torch.cat(out) if out else torch.zeros(0, width, device=self.device)
