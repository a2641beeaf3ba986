"""Make the file of ImageNet weights that a net may start from, torchvision's or a user's own, without the head.

python -m workflow_scripts.steps pretrained --net resnet50 --out data/weights/resnet50.safetensors [--file F]

A study uses it as `train.net: {name: resnet50, weights: imagenet}`. The step does not need torchvision. It needs no
network with --file or if a searched folder has a copy.
"""

import argparse
from pathlib import Path

from fednoise_core.data.fetch import fetch, is_intact
from fednoise_core.io import ArtifactError, SpecError, open_atomic, sha256_file
from fednoise_core.nets.weights import PUBLISHED
from workflow_scripts.steps import common
from workflow_scripts.steps.download import search_folders


def main(arguments: list[str] | None = None) -> int:
    """Run the step.

    Args:
        arguments: The arguments; those of the process if left out.

    Returns:
        0 if the file is written, 2 if the source is missing, damaged or of another net.
    """
    parser = argparse.ArgumentParser(description="Make the file of ImageNet weights that a net may start from.")
    parser.add_argument("--net", required=True, help="a ResNet's name; without --file one of: " + ", ".join(PUBLISHED))
    parser.add_argument("--out", required=True, type=Path, help="the safetensors file to write")
    parser.add_argument("--file", type=Path, help="the user's own state dict: .pth, .pt or .safetensors")
    parser.add_argument("--cache", type=Path, default=Path("data/downloads"), help="keeps downloads; searched last")
    common.add_plan_arguments(parser)
    options = parser.parse_args(arguments)

    def write_weights() -> str:
        source = options.file or _find_published(options.net, search_folders(), options.cache)
        count = convert_weights(source, options.net, options.out)
        return f"{options.out}: {count} tensors for {options.net}, head left out"

    return common.run_step("pretrained", write_weights, options, net=[options.net])


def convert_weights(source: Path, net: str, out: Path) -> int:
    """Check a state dict against a net, and write it without its head.

    Args:
        source: The file of the state dict.
        net: The net's name.
        out: The file to write.

    Returns:
        The number of tensors.

    Raises:
        ArtifactError: The file is missing, damaged, of another net, or holds more than tensors.
    """
    from safetensors.torch import save

    from fednoise_core.nets import build_net
    from fednoise_core.nets.weights import fill_weights, read_tensors

    named = {name: tensor for name, tensor in read_tensors(source).items() if not name.startswith("head.")}
    small = "conv1.weight" in named and named["conv1.weight"].shape[-1] == 3
    weights = build_net({"name": net, "stem": "3x3" if small else "7x7"}, (3, 224, 224), 2).layout.zeros()
    fill_weights(weights, named, source)
    ready = {name: tensor for name, tensor in weights.named().items() if not name.startswith("head.")}
    with open_atomic(out, "wb") as file:
        file.write(save(ready, {"source_sha256": sha256_file(source)}))
    return len(ready)


def _find_published(net: str, folders: list[str], cache: Path) -> Path:
    """Torchvision's file: from a searched folder, else downloaded."""
    if net not in PUBLISHED:
        raise SpecError(f"no published weights are known for net {net!r} (known: {', '.join(PUBLISHED)}); give --file")
    url, sha256 = PUBLISHED[net]
    name = url.rsplit("/", 1)[1]
    for folder in folders:
        for path in (Path(folder) / name, Path(folder) / "weights" / name):
            if is_intact(path, sha256):
                return path
    try:
        return fetch([url], cache / name, sha256)
    except ArtifactError as error:
        looked = ", ".join([*folders, str(cache)])
        help = f"looked in {looked}. Put {name} into one of these folders, or give --file"
        raise ArtifactError(f"{error}; {help}") from error
