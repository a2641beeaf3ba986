"""Run a step: python -m workflow_scripts.steps STEP ARGUMENTS. Each has its own --help."""

import sys
from importlib import import_module

from workflow_scripts.machine.fork_client import exit_as, run_forked

STEPS = (
    *("download", "noise", "partition", "pretrained", "train"),
    *("table", "figure", "metrics", "study_page", "setting_page", "labels_page"),
)

if __name__ == "__main__":
    if (ended := run_forked("workflow_scripts.steps", sys.argv[1:])) is not None:
        exit_as(ended[0])
    step = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if step not in STEPS:
        print(f"{__doc__} The steps: {', '.join(STEPS)}", file=sys.stderr)
        sys.exit(0 if step in ("-h", "--help") else 2)
    sys.argv[0] = f"python -m workflow_scripts.steps {step}"  # the name in the step's own help
    sys.exit(import_module(f"workflow_scripts.steps.{step}").main())
