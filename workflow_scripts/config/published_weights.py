"""The published weights that nets may start from."""

from pathlib import Path

from fednoise_core.io import SpecError
from fednoise_core.nets.weights import PUBLISHED


def check_published(path: str | Path, net: str) -> None:
    """Check that a file of weights, if it exists, was made from the published weights of a net.

    Args:
        path: The file.
        net: A key of PUBLISHED.

    Raises:
        SpecError: The file was made from other weights, or is damaged.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).exists():
        return
    try:
        with safe_open(path, framework="numpy") as file:
            digest = (file.metadata() or {}).get("source_sha256", "no source_sha256 in its metadata")
    except (SafetensorError, OSError) as error:
        raise SpecError(f"{path}: damaged weights file ({error}). Remove it; the workflow makes it again") from error
    if digest != PUBLISHED[net][1]:
        raise SpecError(
            f"{path}: source_sha256: expected the published {PUBLISHED[net][1]}, got {digest}. "
            "Give weights of your own another file name, and name that in the study"
        )
