"""The layers of a run's settings.

A layer overrides the layers above it in this table:

| layer                   | where it stands                                             | what it sets |
| ----------------------- | ----------------------------------------------------------- | ------------ |
| study                   | `train` of the study's file                                 | training     |
| block                   | `grid[i].train`                                             | training     |
| scale                   | `overlay.train` of config/scales/<scale>.yaml, `--config`   | training     |
| study at the scale      | `scales.<scale>.train` of the study's file                  | training     |
| command line            | `--config set='[train.lr=0.05]'`                            | training     |
| method                  | `methods.<id>` of the study's file, else of the catalogue   | method       |
| method in a block       | `grid[i].settings.<id>`                                     | method       |
| method in all blocks    | `settings.<id>` of the study's file and of the scale        | method       |
| training of the method  | `train` of the method that results                          | training     |

A layer usually replaces a setting as a whole. Only the layers of a scale and of the command line replace single keys of
a setting that is a mapping, such as `net: {name: …, width: …}`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from workflow_scripts.config.yaml_file import ConfigPath, deep_merge


class Layer(NamedTuple):
    """Settings and where they stand. deep: mappings are merged key by key."""

    origin: ConfigPath
    settings: Mapping[str, Any]
    deep: bool = False


def resolve_layers(layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[str, ConfigPath]]:
    """Lay every layer over those before it.

    Args:
        layers: The weakest first.

    Returns:
        The settings that result, and for each of them the origin of the last layer that names it.
    """
    settings: dict[str, Any] = {}
    origins: dict[str, ConfigPath] = {}
    for layer in layers:
        settings = deep_merge(settings, layer.settings) if layer.deep else {**settings, **layer.settings}
        origins |= dict.fromkeys(layer.settings, layer.origin)
    return settings, origins
