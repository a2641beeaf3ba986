"""One contender in its own environment; it waits for a line before every turn, and the last it prints is its result.

`python -m benchmarks.peers.contender NAME SETTINGS BEGAN`, as benchmarks.peers calls it.
"""

import importlib
import importlib.metadata
import json
import platform
import sys

import torch

from benchmarks.peers import work as shared

PACKAGES = {
    "plain": [],
    "ours": ["fednoise"],
    "pfl": ["pfl"],
    "flower": ["flwr", "ray"],
    "fedlab": ["fedlab"],
    "fluke": ["fluke-fl"],
    "blazefl": ["blazefl"],
}


def main() -> None:
    name, settings, began = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    work = shared.Work(**settings)
    clock = shared.Clock(work, began)
    weights = importlib.import_module(f"benchmarks.peers.with_{name}").run(work, clock)
    print(f"\n{shared.OVER}", flush=True)  # what follows is no part of the memory measured
    result = clock.result() | {"steps": shared.TRAINED[0], "trained": shared.TRAINED[1]}
    versions = {package: importlib.metadata.version(package) for package in PACKAGES[name]}
    result["versions"] = {"python": platform.python_version(), "torch": torch.__version__, **versions}
    print("\n" + json.dumps(result | shared.numbers(work, weights)))


if __name__ == "__main__":
    main()
