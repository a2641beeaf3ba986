"""One contender in its own environment. It waits for a line before every turn, and prints its result last.

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
    print(f"\n{shared.OVER}", flush=True)  # memory is not measured from here on
    result = clock.result() | {"steps": shared.TRAINED[0], "trained": shared.TRAINED[1]}
    versions = {package: importlib.metadata.version(package) for package in PACKAGES[name]}
    result["versions"] = {"python": platform.python_version(), "torch": torch.__version__, **versions}
    print("\n" + json.dumps(result | shared.describe_result(work, weights)))


if __name__ == "__main__":
    main()
