"""Choose how steps are captured on a device."""

import torch

from fednoise_core.engine.executors.gpu.eager_graphs import Graphs


def graphs_for(device: torch.device) -> Graphs:
    """Choose how steps are captured on a device: by CUDA graphs on a GPU, else by the stand-in.

    Args:
        device: The run's device.
    """
    if device.type != "cuda":
        return Graphs()
    from fednoise_core.engine.executors.gpu.cuda_graphs import CudaGraphs  # the code of runs on a CPU goes without it

    return CudaGraphs()
