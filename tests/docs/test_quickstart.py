"""docs/quickstart.ipynb runs unchanged, has the results that its text gives, and is stored with its outputs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/quickstart.ipynb"

# appended to the notebook: prints the numbers behind its pictures and sentences
PRINT_RESULTS = """\
import json
print(json.dumps({
    "right": float(is_wrong[named].mean()), "found": float(named[is_wrong].mean()), "inside": int(inside),
    "before": int(is_wrong.sum()), "after": int((better != true).sum()),
    "accuracy": {name: float(values.mean()) for name, values in last.items()},
}))
"""


def code_cells() -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_it_is_stored_with_the_outputs_of_one_run_from_top_to_bottom() -> None:
    """A forge can show it, and the file is small."""
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"display_data", "execute_result"}  # no error, no stream
    assert sum("image/png" in output["data"] for output in outputs) == 3
    assert all(cell["outputs"] for cell in cells)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 400_000
    assert str(ROOT) not in text
    assert os.path.expanduser("~") + "/" not in text


@pytest.mark.notebook
def test_it_runs_and_corrected_labels_make_a_better_model(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "nbclient or ipykernel is missing: they are in the extra `dev` and in requirements.lock"
    nbclient = pytest.importorskip("nbclient", reason=why)
    pytest.importorskip("ipykernel", reason=why)
    nbformat = pytest.importorskip("nbformat", reason=why)

    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    stored = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells.append(nbformat.v4.new_code_cell(PRINT_RESULTS))
    nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(ROOT / "docs")}}).execute()

    *now, last = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    kinds = [[[sorted(output["data"]) for output in outputs] for outputs in several] for several in (stored, now)]
    assert kinds[0] == kinds[1]  # a new run makes the stored kinds of outputs
    assert stored[0] == now[0]  # the wrong labels are the same on every machine
    results = json.loads(last[0]["text"])
    assert results["right"] > 0.9  # a third of the labels are wrong
    assert results["found"] > 0.8
    assert results["inside"] >= 2  # of four sites
    assert results["after"] < results["before"] / 3
    assert results["accuracy"]["corrected"] > results["accuracy"]["given"]
