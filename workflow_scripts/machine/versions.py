"""The versions of torch and numpy. They affect the last digits of a run's numbers, and are a part of its address."""

from importlib.metadata import version

from fednoise_core.io import SpecError

Versions = tuple[tuple[str, str], ...]  # (package, public version), sorted


def installed_versions() -> Versions:
    """The installed versions, without the tag of a build such as +cu130."""
    return tuple((name, version(name).split("+")[0]) for name in ("numpy", "torch"))


def versions_text(versions: Versions) -> str:
    """Versions in one line, such as "numpy 2.3.1, torch 2.8.0"."""
    return ", ".join(f"{name} {number}" for name, number in versions)


def check_versions(expected: str) -> str:
    """Compare the installed versions with those that a job was planned with.

    Args:
        expected: The text of the planned versions; "" allows any.

    Returns:
        The text of the installed versions.

    Raises:
        SpecError: They differ.
    """
    installed = versions_text(installed_versions())
    if expected and expected != installed:
        raise SpecError(f"expected {expected}, as planned, got {installed} on this machine. Install the same versions")
    return installed
