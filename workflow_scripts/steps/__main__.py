"""Run a step: python -m workflow_scripts.steps STEP ARGUMENTS. Each has its own --help."""

import sys
from importlib import import_module

if __name__ == "__main__":
    step = sys.argv.pop(1)
    sys.argv[0] = f"python -m workflow_scripts.steps {step}"  # the name in the step's own help
    sys.exit(import_module(f"workflow_scripts.steps.{step}").main())
