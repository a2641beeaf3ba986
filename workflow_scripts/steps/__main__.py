"""Run a step: python -m workflow_scripts.steps STEP ARGUMENTS. Each has its own --help."""

import sys
from importlib import import_module
from pathlib import Path

from workflow_scripts.machine.fork_client import exit_as, run_forked

if __name__ == "__main__":
    if ended := run_forked("workflow_scripts.steps", sys.argv[1:]):
        exit_as(ended[0])
    step = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    modules = {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))}
    steps = [name for name, text in modules.items() if "\ndef main(" in text]
    if step not in steps:
        print(f"{__doc__} The steps: {', '.join(steps)}", file=sys.stderr)
        sys.exit(0 if step in ("-h", "--help") else 2)
    sys.argv[0] = f"python -m workflow_scripts.steps {step}"  # the name in the step's own help
    sys.exit(import_module(f"workflow_scripts.steps.{step}").main())
