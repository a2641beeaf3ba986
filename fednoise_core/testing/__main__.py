"""Run the contract suite on a method: python -m fednoise_core.testing --method package.module:Class.

Further options go to pytest.
"""

import sys


def main(options: list[str]) -> int:
    """Run the suite.

    Args:
        options: Options of pytest.

    Returns:
        pytest's exit status, or 2 without pytest.
    """
    try:
        import pytest
    except ImportError:
        print("the contract suite needs pytest: pip install pytest", file=sys.stderr)
        return 2
    suite = "fednoise_core.testing"
    return pytest.main(["-p", f"{suite}.plugin", "--pyargs", f"{suite}.test_contract", *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
