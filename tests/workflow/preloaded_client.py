"""`python`, `snakemake` and `dvc` on the PATH of workflow tests: they and `python -m …` are forked by the server.

Other commands, and all of them once the server is gone, are run by the real interpreter. Started with -I -S: it needs
little of Python, and a start of it costs 15 ms. PRELOADED_PYTHON is the real interpreter, by its whole path, from which
it finds its packages.
"""

import os
import sys

sys.path.insert(0, os.environ["PRELOADED_CODE"])
from workflow_scripts.machine.fork_client import ADDRESS, exit_as, run_forked

name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
command = arguments if name == "python" else ["-m", name, *arguments]
folder = os.path.dirname(os.environ[ADDRESS])
ended = run_forked(command[1], command[2:], f"{folder}/python") if command[:1] == ["-m"] else None
if ended is None:
    os.execv(os.environ["PRELOADED_PYTHON"], [os.environ["PRELOADED_PYTHON"], *command])
with open(f"{folder}/cpu", "a", encoding="ascii") as file:
    file.write(f"{ended[1]}\n")
exit_as(ended[0])
