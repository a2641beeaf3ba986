"""The nets that training settings name."""

from collections.abc import Mapping
from typing import Any

from fednoise_core.settings.train import Train


def net_settings(train: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the settings {name: …, options…} of the nets that training settings name.

    Args:
        train: The training settings.

    Returns:
        Settings of each net. The default net if the training settings name none.
    """
    setting = train.get("net", Train.net)
    nets = setting if isinstance(setting, list | tuple) else [setting]
    return [net if isinstance(net, Mapping) else {"name": net} for net in nets]


def net_code(train: Mapping[str, Any]) -> list[str]:
    """List the names from which the code of the nets is found.

    Args:
        train: The training settings.

    Returns:
        Names of the library's nets, and the factories "module:function" of the user's own.
    """
    nets = net_settings(train)
    return list(dict.fromkeys(str(net[key]) for key in ("name", "factory") for net in nets if key in net))
