"""The command `fednoise <verb>`: one entry for everything that a person types beside `snakemake` and `dvc`."""

import os
import sys
from difflib import get_close_matches
from importlib import import_module

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.version import __version__
from workflow_scripts.provenance.step_code import ROOT
from workflow_scripts.steps.common import INTERRUPTED, USER_ERROR, report_error

VERBS = {  # verb → module with a function `main`; the first line of its docstring is the verb's line in the help
    "run": "workflow_scripts.commands.run",
    "cell": "workflow_scripts.commands.cell",
    "list": "workflow_scripts.commands.list_kinds",
    "show": "workflow_scripts.commands.show_kind",
    "leaderboard": "workflow_scripts.commands.leaderboard",
    "progress": "workflow_scripts.commands.progress",
    "audit": "workflow_scripts.commands.audit",
    "record": "workflow_scripts.commands.record",
    "prune": "workflow_scripts.commands.prune",
    "label-study": "workflow_scripts.commands.label_study",
    "labels-page": "workflow_scripts.steps.labels_page",
    "apply-decisions": "workflow_scripts.commands.apply_decisions",
    "flower-app": "workflow_scripts.commands.flower_app",
    "new": "workflow_scripts.commands.new",
    "schema": "workflow_scripts.docgen.config_schema",
    "publish": "workflow_scripts.docgen.publish",
}
EXIT_CODES = "Exit status: 0 done, 1 problems or a refused plan, 2 a wrong file or argument, 75 interrupted: rerun it"


def main(arguments: list[str] | None = None) -> int:
    """Run a verb. An error in a file or argument is printed as one line.

    Args:
        arguments: The verb and its own arguments; those of the process if left out.

    Returns:
        The exit status, see EXIT_CODES.
    """
    verb, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if verb in ("-h", "--help", "help"):
        print(format_help())
        return 0
    if verb == "--version":
        print(f"fednoise {__version__}")
        return 0
    if verb not in VERBS:
        matches = get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {matches[0]!r}?" if matches else f"known: {', '.join(VERBS)}"
        print(f"fednoise: unknown command {verb!r}; {hint}", file=sys.stderr)
        return USER_ERROR
    sys.argv[0] = f"fednoise {verb}"  # the name in the verb's own help
    try:
        status: int = import_module(VERBS[verb]).main(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # such as `fednoise list methods | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise the flush at exit would fail
        return 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(("fednoise_core", "workflow_scripts")):
            raise
        print(f'{verb}: the package {error.name} is missing; pip install ".[workflow]" in a clone', file=sys.stderr)
        return USER_ERROR
    except (SpecError, ArtifactError, OSError) as error:
        return report_error(verb, error)
    except KeyboardInterrupt:
        return INTERRUPTED


def format_help() -> str:
    """Return the help: a line for each verb, which is the first line of its module."""
    width = max(map(len, VERBS)) + 2
    files = {verb: ROOT.joinpath(*module.split(".")).with_suffix(".py") for verb, module in VERBS.items()}
    # read the first line of each docstring from the file, since an import may take seconds
    summaries = {verb: file.read_text(encoding="utf-8").splitlines()[0].strip('"') for verb, file in files.items()}
    lines = [f"  {verb:{width}}{summary}" for verb, summary in summaries.items()]
    title = "fednoise: federated learning with noisy labels. Each command has its own help: fednoise <command> --help"
    return "\n".join([title, "", "Commands:", *lines, "", EXIT_CODES])


if __name__ == "__main__":
    sys.exit(main())
