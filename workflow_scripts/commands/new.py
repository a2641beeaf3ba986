"""Write the files of a new method, which runs and passes its tests without any change.

fednoise new method fedpull --class-name FedPull

docs/add_a_method.md says what to change in them.
"""

import argparse
import keyword
import re
import subprocess
import sys
from pathlib import Path

from fednoise_core.io import SpecError, open_atomic

REGISTRY = Path("fednoise_core/methods/__init__.py")
FILES = {
    "fednoise_core/methods/{name}.py": '''\
"""{cls} (authors, year): FedAvg with a pull towards the broadcast model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Weights
from fednoise_core.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class {cls}(FedAvg):
    """{cls} (authors, year): FedAvg with a pull towards the broadcast model.

    L = CE + (strength/2) ||theta - theta_g||^2 over the trained parameters.
    """

    example: ClassVar = {{"strength": 0.1}}

    strength: Annotated[float, Field(ge=0, description="Weight of the pull.")] = 0.01

    def correct_gradient(
        self, grad: Tensor, w: Weights, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]
    ) -> None:
        """Add the gradient of the pull, strength (theta - theta_g)."""
        grad.add_(w.trained.detach() - broadcast["model"].trained, alpha=self.strength)
''',
    "tests/methods/test_{name}.py": '''\
"""{cls} on `toy`, the federation of eight small clients in fednoise_core/testing/world.py."""

import toy


def test_strength_zero_is_fedavg_bit_for_bit() -> None:
    fedavg = toy.play("fedavg").outcome.state
    assert toy.same_state(toy.play("{name}", method={{"strength": 0.0}}).outcome.state, fedavg)
    assert not toy.same_state(toy.play("{name}", method={{"strength": 0.1}}).outcome.state, fedavg)
''',
    "docs/methods/{name}.md": """\
---
method: {cls} (authors, year)
changes: a pull towards the broadcast model
traffic: the model
client_state: nothing
passes: 1
---
# {cls} — `{name}`

The idea in two sentences.

Source: add the paper to docs/references.bib and link it here. The pull is that of
[Li et al. (2020)](../references.md#li2020fedprox).

## Equations

L = CE + (strength/2)·‖θ − θ_g‖².

## Settings

| setting | meaning | default | paper |
|---|---|--:|---|
| `strength` | weight of the pull | 0.01 | not given |

## Notes

- Details that decide the result.

## Deviations

None known.

## Results

Not run yet.
""",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command: write the files, and config/schema."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["method"], help="what to add")
    parser.add_argument("name", help="its name in config files: lower case, digits and _")
    parser.add_argument("--class-name", help="the name of its class; default: made from the name")
    args = parser.parse_args(arguments)
    files = write_method(args.name, args.class_name or args.name.title().replace("_", ""))
    # a new process, since this one has already imported the old registry
    fednoise = [sys.executable, "-m", "workflow_scripts.commands.main"]
    subprocess.run([*fednoise, "schema"], check=True, capture_output=True)
    test = "python -m pytest tests/methods"
    print("\n".join(["Written:", *(f"  {file}" for file in [*files, "config/schema/method.yaml"])]))
    print(f"Next: change them, then {test}/test_contract.py -k {args.name} --golden && {test} -k {args.name}")
    return 0


def write_method(name: str, class_name: str) -> list[str]:
    """Write the files of a method and register it.

    Args:
        name: The method's name in config files.
        class_name: The name of its class.

    Returns:
        The written and changed files.

    Raises:
        SpecError: A name cannot be used, a file exists already, or the working folder is not the project's.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or not class_name.isidentifier() or keyword.iskeyword(class_name):
        raise SpecError(f"expected a name in lower case and the name of a class, got {name!r} and {class_name!r}")
    if not REGISTRY.is_file():
        raise SpecError(f"{REGISTRY}: no such file; run this in the project's folder")
    files = {pattern.format(name=name): text.format(name=name, cls=class_name) for pattern, text in FILES.items()}
    if taken := [file for file in files if Path(file).exists()]:
        raise SpecError(f"{taken[0]} exists already; choose another name")
    for file, text in files.items():
        with open_atomic(file) as opened:
            opened.write(text)
    lines = REGISTRY.read_text(encoding="utf-8").splitlines(keepends=True)
    end = next(k for k, line in enumerate(lines) if line == "}\n")
    lines.insert(end, f'    "{name}": "fednoise_core.methods.{name}:{class_name}",\n')
    with open_atomic(REGISTRY) as opened:
        opened.writelines(lines)
    return [*files, str(REGISTRY)]
