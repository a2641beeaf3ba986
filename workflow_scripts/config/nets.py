"""The nets that training settings name."""

from collections.abc import Mapping
from typing import Any

from fednoise_core.settings.train import Train


def nets_of(train: Mapping[str, Any]) -> list[str]:
    """List the nets that training settings name.

    Args:
        train: The training settings.

    Returns:
        Names of nets, the default's where the settings name none.
    """
    setting = train.get("net", Train.net)
    nets = setting if isinstance(setting, list | tuple) else [setting]
    return [str(net.get("name") if isinstance(net, Mapping) else net) for net in nets]


def net_code(train: Mapping[str, Any]) -> list[str]:
    """List what the code of the nets starts from.

    Args:
        train: The training settings.

    Returns:
        Names of the library's nets, and the factories "module:function" of the user's own.
    """
    setting = train.get("net", Train.net)
    nets = setting if isinstance(setting, list | tuple) else [setting]
    factories = [str(net["factory"]) for net in nets if isinstance(net, Mapping) and "factory" in net]
    return list(dict.fromkeys([*nets_of(train), *factories]))
