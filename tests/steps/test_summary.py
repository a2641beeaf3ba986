"""The summary numbers that git keeps, and the runs that each is the mean of."""

import configparser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fake_runs import write_study

from workflow_scripts.report.pages import headline as report_headline
from workflow_scripts.report.runs.frames import tabulate_results
from workflow_scripts.report.runs.run import listed_runs, load
from workflow_scripts.steps import metrics as metrics_step

ROOT = Path(__file__).parents[2]
GRID = [
    {"noises": ["sym40"], "partitions": ["openset-uniform", "iid"], "methods": ["fedavg", "local"]},
    {"noises": ["clean"], "partitions": ["iid"], "methods": ["fedavg"]},
]


def test_headline_is_the_mean_over_seeds_and_noisy_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(tmp_path, grid=GRID, rounds=12)
    out, runs = tmp_path / "metrics.json", ["--runs-list", str(tmp_path / "runs.json")]
    files = [f"--{name}={tmp_path / name}" for name in ("accuracy", "curves")]
    assert metrics_step.main([*runs, "--out", str(out), "--headline", str(tmp_path / "headline.json"), *files]) == 0
    metrics, headline = (json.loads(path.read_text()) for path in (out, tmp_path / "headline.json"))
    for method in ("fedavg", "local"):
        noisy = [cell["last10_mean"] for place, cell in metrics[method].items() if "/clean/" not in place]
        assert len(noisy) == 2
        assert headline[method] == pytest.approx(sum(noisy) / 2, abs=1e-4)
    assert len(metrics["fedavg"]) == 3
    first, *won = capsys.readouterr().out.splitlines()
    assert first.startswith("No method is above FedAvg in all 4 pairs of runs with the same setting and seed.")
    assert [line.partition(":")[2].split()[0] for line in won] == ["FedAvg"] * 2
    loaded = load(listed_runs(tmp_path / "runs.json"))
    monkeypatch.setattr(report_headline, "LINES", 1)
    assert [line.split(" ", 1)[0] for line in report_headline.summary_lines(loaded)[2:]] == ["and"]
    (alone,) = report_headline.summary_lines([run for run in loaded if run.listed.partition == "openset-uniform"])
    assert alone.startswith("No method is above FedAvg in both pairs of runs with the same setting and seed.")
    frame = tabulate_results(loaded)
    only_clean = metrics_step.headline_numbers(frame[frame["noise"] == "clean"])
    assert only_clean["fedavg"] == pytest.approx(metrics["fedavg"]["digits/clean/iid"]["last10_mean"], abs=1e-4)


def fields(template: Any) -> set[str]:
    """Every field of the data that a template names."""
    if isinstance(template, list):
        return set().union(*map(fields, template))
    if not isinstance(template, dict):
        return set(re.findall(r"datum\.(\w+)", template)) if isinstance(template, str) else set()
    names = {template["field"]} if isinstance(template.get("field"), str) else set()
    return names.union(*map(fields, template.values()))


def test_dvcs_templates_name_columns_of_the_csvs_and_methods_have_their_marks(tmp_path: Path) -> None:
    grid = [{"noises": ["sym40", "clean"], "partitions": ["iid"], "methods": ["fedavg", "local", "feddpcont"]}]
    write_study(tmp_path, grid=grid, rounds=3)
    runs = load(listed_runs(tmp_path / "runs.json"))
    frames = {"curves": metrics_step.curves_table(runs), "dots": metrics_step.accuracy_table(tabulate_results(runs))}
    for name, frame in frames.items():
        template = json.loads((ROOT / f".dvc/plots/fednoise_{name}.json").read_text(encoding="utf-8"))
        assert fields(template) - {"rev"} <= set(frame.columns), name  # rev is DVC's own
    marked = {"FedAvg", "Local only §", "FedDPCont ‡"}
    assert set(frames["dots"]["method"]) == marked
    assert list(frames["dots"]["noise"]) == 3 * ["sym40", "clean"]  # in the order of the list of runs
    assert set(frames["curves"]["method"]) == marked | {f"{name}, no noise" for name in marked}
    dvc = configparser.ConfigParser()
    dvc.read(ROOT / ".dvc/config")
    page = (ROOT / ".dvc" / dvc["plots"]["html_template"]).read_text(encoding="utf-8")
    assert "it needs the" in page
    assert all(place in page for place in ("{plot_divs}", "{scripts}", "{refresh_tag}"))


def test_a_filter_on_numbers_reads_texts_as_numbers() -> None:
    """DVC hands over the cells of a CSV as texts, and "9.1" >= "70" is true of texts."""
    text = (ROOT / ".dvc/plots/fednoise_curves.json").read_text(encoding="utf-8")
    (condition,) = re.findall(r'"filter": "(.*)"', text)
    assert re.sub(r"toNumber\(datum\.\w+\)", "", condition).strip() == ">="
