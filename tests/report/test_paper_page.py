"""The page of a paper is made from its finished runs. It states settings, deviations, origins and verdicts."""

import base64
import json
import lzma
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_runs import finish_run
from layout_check import problems

from benchmarks.verdicts import judge_folder
from fednoise_core.io import ArtifactError, SpecError, json_digest, read_texts
from workflow_scripts.commands import main
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.docgen.publish import find_study, finished_runs, publish_study, write_papers
from workflow_scripts.docgen.published_runs import pack_runs
from workflow_scripts.provenance.checksums import write_sums
from workflow_scripts.report.figures import draw, style
from workflow_scripts.report.pages.paper_sections import _describe_gains
from workflow_scripts.report.tables.claims import NOT_RUN, STATES, VOID, judge_claims
from workflow_scripts.report.tables.registry import build_table, complete_spec, read_table
from workflow_scripts.report.tables.scorecard import JUDGED, score_table
from workflow_scripts.study.paper_settings import settings_provenance
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
REPRODUCTION = {"kind": "reproduction"}
CONFIG = read_yaml(ROOT / "config/config.yaml")


def run_paper(root: str, figures: tuple[str, ...] = (), **chosen: Any) -> Study:
    """A paper's study with made-up results of the chosen runs and only these figures, as drawing takes seconds."""
    study = find_study(root)
    study.figures = {name: study.figures[name] for name in figures}
    for run in study.runs:
        if all(getattr(run, key) in values for key, values in chosen.items()):
            finish_run(study.name, run)
    return study


CHOSEN_RUNS = {
    "noise": ["sym40-exact"],
    "partition": ["classes3"],
    "method": ["fedavg", "sce", "fedlsr"],
    "seed": [0],
}


def first_screen(text: str) -> str:
    return text.split("\n## ", 1)[0]


def count_runs(study: Study) -> int:
    """Count the study's runs. Figure 7's run with batch 60 is also the one of FedMixCon, and counts once."""
    count = len({run.folder for run in study.runs})
    assert count < len(study.runs)
    return count


def section(text: str, head: str) -> str:
    return text.split(f"\n## {head}\n", 1)[1].split("\n## ", 1)[0]


def test_a_paper_is_published_as_far_as_it_was_run(config_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = run_paper("fedmixcon-cpu", ("figure6", "figure7", "scoreboard", "gains"), **CHOSEN_RUNS)
    out = config_copy / "out"
    with pytest.raises(ArtifactError, match="no run of the study is finished"):
        publish_study(find_study("fedmixcon"), out)
    sums = Path(finished_runs(study)[0].dir, "SHA256SUMS")
    text = sums.read_text()
    sums.unlink()
    assert len(finished_runs(study)) == 5  # a run killed while it wrote its files does not count
    sums.write_text(text)
    publish_study(study, out, config_copy / "page.html")
    text = (out / "README.md").read_text(encoding="utf-8")
    table3 = next(line for line in section(text, "Reproduction").splitlines() if line.startswith("| Table 3"))
    assert [cell.strip() for cell in table3.split("|")[2:5]] == ["60", "6", "54"]
    assert "±" not in section(text, "Tables").split("**Table 3")[1].splitlines()[4]  # one seed has no spread
    assert "within 2 points" not in text  # verdicts are only given at the paper's scale
    assert f"6 of {count_runs(study)} runs; `snakemake" in text
    assert "Nothing of these was run: Table 1: augmentation under noise, FedAvg on Fashion-MNIST." in text
    figure6 = section(text, "Figures").split("### Figure 6: MNIST over rounds")[1]
    assert "](figure6.png)" in figure6
    assert "Highest" in figure6.split("](")[0]  # the picture in words, for those who cannot see it
    assert "figure7" not in text
    assert (out / "figure6.png").is_file()
    html = (config_copy / "page.html").read_text(encoding="utf-8")
    assert (
        html.count("fednoise cell --paper fedmixcon --table 3 --method sce --noise sym40-exact --dataset mnist") == 1
    )  # in the list
    assert '<h2 id="sources">' in html
    for page in (first_screen(text), html):
        assert study.data["paper"]["title"] in page
        assert "Cuiwei Peng, Jun Ke, Zhengming Li, Huiwu Huang, Jiahui Chen. 2025" in page
        assert "Scale cpu: the paper" in page
        assert "a small normalised CNN in place of its nine-layer CNN" in page
        assert "Of the paper's 19 claims" in page.replace("&#39;", "'")
        assert "; 70 of the 78 cells that the paper prints were not run, among them all of Table 1. In" in page
    assert "](scoreboard.png)" in first_screen(text)
    assert "Gains with the paper's sign, in all cells that were run: " in section(text, "Reproduction")
    assert "CPU hours" in section(text, "Compute")
    heads = re.findall(r"^## (.*)", text, re.M)
    assert heads[:3] == ["The paper's claims", "Tables", "Reproduction"]
    assert "](gains.png)" in section(text, "Figures")
    assert "t_w is a fifth of all rounds" in html

    rows = read_texts(out / "origins.csv").to_dict("records")
    assert len(rows) == 6 + 2  # table 4 shows FedAvg, too
    record = json.loads(Path(rows[0]["run"]).read_text())
    assert rows[0]["digest"] == json_digest(record["spec"])
    assert rows[0]["code"] == record["code"]
    assert (rows[0]["device"], rows[0]["versions"]) == ("cpu", "numpy 2.3.0, python 3.11.9, torch 2.14.1")
    cells = read_table(out / "table3.csv", REPRODUCTION)
    fedavg = cells[(cells["dataset"] == "mnist") & (cells["method"] == "fedavg") & (cells["seeds"] == 1)]
    assert float(rows[0]["accuracy"]) == pytest.approx(fedavg["ours_mean"].iloc[0], abs=1e-3)
    assert capsys.readouterr().err == ""


def test_hand_written_text_stays_and_runs_of_other_settings_do_not_count(config_copy: Path) -> None:
    run_paper("fedmixcon-cpu", **CHOSEN_RUNS)
    page = config_copy / "docs/results/fedmixcon-cpu/README.md"
    page.parent.mkdir(parents=True)
    page.write_text("<!-- written by hand -->\nSCE helps.\n<!-- end of what is written by hand -->\n")
    file = config_copy / "config/papers/fedmixcon.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("  - datasets: [mnist]\n", "  - datasets: [mnist]\n    train: {lr: 0.1}\n", 1))
    changed = find_study("fedmixcon-cpu")
    changed.figures = {}
    publish_study(changed, page.parent)
    text = page.read_text(encoding="utf-8")
    assert "SCE helps." in text
    assert text.count("written by hand") == 2
    assert f"3 of {count_runs(changed)} runs; `snakemake" in text
    page.write_text("<!-- written by hand-->\nSCE helps.\n<!-- end of what is written by hand -->\n")
    with pytest.raises(SpecError, match=r"README\.md: what is written by hand must stand between the lines <!--"):
        publish_study(changed, page.parent)
    assert "SCE helps." in page.read_text(encoding="utf-8")


def test_a_publication_counts_the_runs_of_an_earlier_one(config_copy: Path) -> None:
    out = config_copy / "docs/results/fedmixcon-cpu"
    publish_study(run_paper("fedmixcon-cpu", ("curves",), **CHOSEN_RUNS), out)
    before = {name: (out / name).read_bytes() for name in ("table3.csv", "origins.csv", "runs.json.xz", "curves.png")}
    trained = set(read_texts(out / "origins.csv")["run"])
    shutil.rmtree("store")  # another machine
    study = find_study("fedmixcon-cpu")
    study.figures = {"curves": study.figures["curves"]}
    publish_study(study, out, config_copy / "page.html")
    assert {name: (out / name).read_bytes() for name in before} == before
    html = (config_copy / "page.html").read_text(encoding="utf-8")
    assert "earlier/store" not in html + "".join(map(decoded, re.findall(r"base64,([\w+/=]+)", html)))
    later = run_paper("fedmixcon-cpu", **(CHOSEN_RUNS | {"method": ["rofl-oracle", "sce"]}))  # SCE was published
    for run in finished_runs(later):
        cost = json.loads((run.dir / "cost.json").read_text())
        (run.dir / "cost.json").write_text(json.dumps(cost | {"device": "NVIDIA H100"}))
        write_sums(run.dir)
    publish_study(later, out)
    text = (out / "README.md").read_text(encoding="utf-8")
    assert f"CPU hours, and 4 runs on a GPU; 8 of {count_runs(later)} runs; `snakemake" in text
    assert read_table(out / "table3.csv", REPRODUCTION)["seeds"].sum() == 8
    origins = read_texts(out / "origins.csv")
    assert set(origins[origins["device"] == "NVIDIA H100"]["method"]) == {"rofl-oracle", "sce"}
    assert trained < set(origins["run"])
    assert all(name.startswith("store/runs/") for name in origins["run"])


def decoded(text: str) -> str:
    return base64.b64decode(text).decode("utf-8", "ignore")


def test_published_runs_of_other_settings_do_not_count_and_stay(config_copy: Path) -> None:
    out, file = config_copy / "docs/results/fedmixcon-cpu", config_copy / "config/papers/fedmixcon.yaml"
    publish_study(run_paper("fedmixcon-cpu", **CHOSEN_RUNS), out)
    shutil.rmtree("store")
    text, packed = file.read_text(encoding="utf-8"), (out / "runs.json.xz").read_bytes()
    changed = text.replace("  - datasets: [mnist]\n", "  - datasets: [mnist]\n    train: {lr: 0.1}\n", 1)
    for now, counted in ((changed, 3), (text, 6)):
        file.write_text(now)
        study = find_study("fedmixcon-cpu")
        study.figures = {}
        publish_study(study, out)
        assert f"{counted} of {count_runs(study)} runs; `snakemake" in (out / "README.md").read_text(encoding="utf-8")
        assert (out / "runs.json.xz").read_bytes() == packed
    runs = json.loads(lzma.decompress(packed))
    for others, subject in ((1, "1 of the runs was"), (6, "All runs were")):  # made by other code
        renamed = {f"{key[:-4]}0000" if n < others else key: run for n, (key, run) in enumerate(sorted(runs.items()))}
        (out / "runs.json.xz").write_bytes(pack(renamed))
        publish_study(study, out)
        text = (out / "README.md").read_text(encoding="utf-8")
        assert f"6 of {count_runs(study)} runs; `snakemake" in text
        assert f"{subject} made with another version of the code" in text


def test_rows_of_other_scales_stand_beside_those_of_the_page_and_decide_no_claim(
    config_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = config_copy / "docs/results/fedmixcon-cpu"
    publish_study(run_paper("fedmixcon-cpu", **CHOSEN_RUNS), out)
    assert "## At other sizes" not in (out / "README.md").read_text(encoding="utf-8")
    claims = (out / "claims.csv").read_bytes()
    printed = {"FedAvg": "38.75", "FedMixCon": "71.33", "mixed prediction": "57.29"}  # the last in table 4 alone
    methods = ["fedavg", "fedmixcon", "fedmixcon-mixpred"]
    run_paper("fedmixcon-cpunarrow", **(CHOSEN_RUNS | {"dataset": ["fashion_mnist"], "method": methods}))
    for _ in range(2):
        study = find_study("fedmixcon-cpu")
        study.figures = {}
        publish_study(study, out)
        shutil.rmtree("store", ignore_errors=True)  # then on another machine
        scales = section((out / "README.md").read_text(encoding="utf-8"), "At other sizes and with other nets")
        assert "- Scale cpunarrow: the paper's protocol, with its nine-layer CNN at a sixteenth of its width." in scales
        rows = [line.strip("| ").split(" | ") for line in scales.splitlines() if line.startswith("| cpunarrow")]
        assert {row[1] for row in rows} == {"Fashion-MNIST · noise 0.4 · 3 classes a client"}
        assert {row[2]: row[5] for row in rows} == printed
        cells = read_table(out / "table4.csv", REPRODUCTION)
        (ours,) = cells.loc[(cells["dataset"] == "fashion_mnist") & (cells["seeds"] > 0), "ours_mean"]  # FedAvg
        assert [row[4] for row in rows] == [f"{ours:.2f} (1)", "not run", "not run"]
        origins = read_texts(out / "origins.csv")
        narrow = origins[origins["command"].str.endswith("--scale cpunarrow") & (origins["table"] == "table3")]
        assert [f"{float(value):.2f} (1)" for value in narrow["accuracy"]] == [row[3] for row in rows]
        assert (out / "claims.csv").read_bytes() == claims
    assert main.main(["publish", "--root", "results/fedmixcon-cpunarrow"]) == 2
    assert "on the page of scale cpu. Publish results/fedmixcon-cpu\n" in capsys.readouterr().err


def test_a_scale_with_a_reason_for_void_claims_judges_none(config_copy: Path) -> None:
    publish_study(run_paper("fedmixcon-cpunarrow", **CHOSEN_RUNS), config_copy / "out")
    assert {*read_texts(config_copy / "out/claims.csv")["state"]} == {VOID, NOT_RUN}
    text = first_screen((config_copy / "out/README.md").read_text(encoding="utf-8"))
    assert "All are void at this scale, because the width of this net decides" in text


def test_published_runs_that_are_damaged_are_refused_and_too_many_are_not_written(
    config_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, file = run_paper("fedmixcon-cpu", **CHOSEN_RUNS), config_copy / "out/runs.json.xz"
    publish_study(study, file.parent)
    packed = file.read_bytes()
    runs = json.loads(lzma.decompress(packed))
    address, parts = next(iter(runs.items()))
    for broken in (
        packed[:-30],
        b"{}",
        *map(pack, ([], {"../../x": parts}, {address: {}}, {address: parts | {"summary.json": "[]"}})),
    ):
        file.write_bytes(broken)
        with pytest.raises(ArtifactError, match=r"runs\.json\.xz: damaged .* git"):
            publish_study(study, file.parent)
    file.write_bytes(packed)
    assert pack_runs(finished_runs(study), {}, file, limit=100) == []
    assert f"not written, as it would have {len(packed):,} bytes" in capsys.readouterr().err
    assert file.read_bytes() == packed
    for earlier in (runs, {address: parts | {"metrics": "of another machine"}}):
        pack_runs(finished_runs(study), earlier, file, limit=1 << 20)
    warning = "published runs that are replaced by runs of this machine with other accuracies: 1"
    message = f"{file}: {warning}, such as {address}\n"
    assert capsys.readouterr().err == message


def pack(value: Any) -> bytes:
    return lzma.compress(json.dumps(value).encode())


def test_tables_and_figures_without_runs_are_no_longer_published(config_copy: Path) -> None:
    study = run_paper("fedmixcon-cpu", **CHOSEN_RUNS)
    out = config_copy / "docs/results/fedmixcon-cpu"
    publish_study(study, out)
    old = [out / "table1.csv", out / "table1.md", out / "figure1.png", out / "notes.txt"]
    for path in old:  # table 1 and figure 1 have no run now
        path.write_text("of an earlier publication")
    again = find_study("fedmixcon-cpu")
    again.figures = {"figure1": again.figures["figure1"]}
    publish_study(again, out)
    assert [path.exists() for path in old] == [False, False, False, True]
    assert (out / "table3.csv").is_file()


def test_at_paper_scale_every_cell_that_was_run_has_a_verdict(config_copy: Path) -> None:
    study = run_paper("fedmixcon", noise=["sym40-exact"], partition=["classes3"], method=["fedavg", "sce", "fedlsr"])
    out = config_copy / "docs/results/fedmixcon"
    publish_study(study, out)
    scores = score_table(read_table(out / "table3.csv", REPRODUCTION))
    assert sum(scores.cells[name] for name in JUDGED) == scores.ran == 6
    text = section((out / "README.md").read_text(encoding="utf-8"), "Reproduction")
    line = next(line for line in text.splitlines() if line.startswith("| Table 3"))
    cells = [cell.strip() for cell in line.split("|")[2:]]
    assert cells[:2] == ["60", "6"]  # the study has rows that the paper has not
    assert [int(cell) for cell in cells[2:5]] == [scores.cells[name] for name in JUDGED]
    assert "What scale" not in (out / "README.md").read_text()


def test_sources_of_settings_are_read_from_the_paper_file(config_copy: Path) -> None:
    project = {scale: Project({**CONFIG, "scale": scale}, config_copy) for scale in ("paper", "cpu")}
    study = Study(project["cpu"], "fedmixcon")
    rows = {(row["part"], row["name"]): row for row in settings_provenance(study)["settings"]}
    assert rows["train", "net"] | {"note": ""} == {
        "part": "train",
        "name": "net",
        "value": "cnn9",
        "says": "paper",
        "note": "",
        "scaled": "name: small_cnn, width: 16, hidden: 128, norm: true",
    }
    assert rows["train", "rounds"]["says"] == "our choice"
    assert rows["train", "rounds"]["note"].startswith("t_w is a fifth")
    assert rows["train", "lr"]["scaled"] == ""
    assert rows["mnist", "settings"] | {"scaled": ""} == {
        "part": "mnist",
        "name": "settings",
        "value": "fedmixcon: {ramp: 10}",
        "says": "paper",
        "note": "t_w",
        "scaled": "",
    }
    assert rows["partitions", "classes3"]["says"] == "paper, code"
    assert rows["noises", ""]["says"] == "paper, code"
    provenance = {paper: settings_provenance(Study(project["paper"], paper)) for paper in project["paper"].paper_names}
    for paper, record in provenance.items():
        assert record["changes"] == []
        assert all(row["scaled"] == "" for row in record["settings"]), paper
        unsourced = [row["name"] for row in record["settings"] if row["part"] == "train" and not row["says"]]
        assert unsourced == [], paper  # every training setting of a paper has a source
        assert not any("[" in row["note"] for row in record["settings"]), paper
    assert provenance["feddpcont"]["absent"] == ["clothing1m-public"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train.fractions: paper", "sources.train.fractions: expected the keys of a setting"),
        ("grid.99.settings: paper", "sources.grid.99.settings: expected the keys"),
        ("train.fraction: papers", "sources.train.fraction: "),
    ],
)
def test_a_source_of_an_unknown_setting_is_refused(config_copy: Path, line: str, message: str) -> None:
    file = config_copy / "config/papers/fedmixcon.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("train.fraction: paper", line), encoding="utf-8")
    with pytest.raises(SpecError, match=f"^config/papers/fedmixcon.yaml: {re.escape(message)}"):
        settings_provenance(Study(Project({**CONFIG, "scale": "paper"}, config_copy), "fedmixcon"))


def test_changes_of_a_scale_are_listed(config_copy: Path) -> None:
    rows = settings_provenance(Study(Project({**CONFIG, "scale": "smoke"}, config_copy), "fedmixcon"))["changes"]
    changes = {row["name"]: (row["value"], row["scaled"]) for row in rows if row["name"] != "data"}
    assert changes["train.rounds"] == ("100", "2")
    assert changes["partitions.iid.clients"] == ("100", "10")
    assert changes["settings.fedmixcon.ramp"] == ("by block", "1")
    assert changes["grid"] == ("120 cells", "8 cells")
    assert "classes5" not in str(changes)
    assert ("mnist", "digits") in [(row["value"], row["scaled"]) for row in rows if row["name"] == "data"]


def test_scores_add_up() -> None:
    rows = [
        ("a", 90.0, 91.0, "within 2 points"),
        ("b", 80.0, 85.0, "apart"),
        ("c", 70.0, 60.0, "apart"),
        ("d", float("nan"), 50.0, "not run"),
    ]
    frame = pd.DataFrame(rows, columns=["method", "ours_mean", "paper_mean", "verdict"]).assign(
        dataset="x", noise="y", partition="z", member="", ceiling=0, scale="paper", paper="printed", ours_by_seed=""
    )
    scores = score_table(frame)
    assert (scores.ran, scores.ranks) == (3, [1.0])
    assert [scores.cells[name] for name in JUDGED] == [0, 1, 2]
    total = scores + scores
    assert (total.ran, len(total.ranks)) == (6, 2)
    assert [total.cells[name] for name in JUDGED] == [0, 2, 4]


def test_the_page_counts_claims_as_its_csv_and_the_list_of_papers_do(config_copy: Path) -> None:
    study = run_paper("fedmixcon-cpu", **CHOSEN_RUNS)
    results = config_copy / "docs/results"
    publish_study(study, results / "fedmixcon-cpu")
    rows = read_texts(results / "fedmixcon-cpu/claims.csv")
    states = list(rows[rows["reading"] == ""].drop_duplicates(["table", "claim"])["state"])
    expected = [len(states), *(states.count(state) for state in (*STATES, NOT_RUN))]
    assert expected[5] not in (0, expected[0])  # some were run
    text = write_papers(results).read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "fedmixcon-cpu/README.md" in line)
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["`cpu`", *map(str, expected)]
    page = (results / "fedmixcon-cpu/README.md").read_text(encoding="utf-8")
    table = section(page, "The paper's claims").split("\n### ")[0]
    listed_states = [row.split(" | ")[3] for row in table.splitlines() if re.match(r"\| \d+ \|", row)]
    chosen = rows[rows["reading"] == ""].drop_duplicates("number")
    unjudged = chosen["column"].isna() | (chosen["column"] == "")
    assert listed_states == ["–" if none else state for none, state in zip(unjudged, states, strict=True)]
    lead = f"Of the paper's {len(states)} claims {len(states) - expected[5]} have a verdict: "
    summary = first_screen(page).split(lead)[1].split(" Verdicts rest")[0]
    for state in STATES:
        assert re.search(rf"{state} (\d+)", summary)[1] == str(states.count(state))
    assert judge_folder(results / "fedmixcon-cpu")[0] == []  # as the second implementation does


def test_published_verdicts_are_those_of_a_second_implementation() -> None:
    listed = (ROOT / "docs/results/papers.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    folders = [file.parent for file in sorted((ROOT / "docs/results").glob("*/claims.csv"))]
    assert len(folders) > 3
    for folder in folders:
        differs, counts = judge_folder(folder)
        assert differs == []
        cells = " | ".join(map(str, (counts.total(), *(counts[state] for state in (*STATES, NOT_RUN)))))
        (line,) = [line for line in listed.splitlines() if f"({folder.name}/README.md)" in line]
        assert line.endswith(f"| {cells} |")
        lines = [line for line in readme.splitlines() if line.startswith("|") and f"/{folder.name}/README.md)" in line]
        assert all(line.endswith(f"| {cells} |") for line in lines)
        assert len(lines) == folder.name.endswith("-cpu")
        rows = read_texts(folder / "claims.csv")
        chosen = rows[rows["reading"] == ""].groupby("number")["state"].first()
        turns = rows.loc[rows["state"] != rows["number"].map(chosen), "number"].nunique()
        sentence = f"Other readings of the paper change {turns} verdict"
        assert (sentence in (folder / "README.md").read_text(encoding="utf-8")) == (turns > 0)


def test_a_reason_is_shown_beside_its_claim(config_copy: Path) -> None:
    file = config_copy / "config/papers/fedmixcon.yaml"
    text = re.sub(r"    why:\n(      .*\n)+", "", file.read_text(encoding="utf-8"))  # the scales' reasons
    file.write_text(text)
    study = run_paper("fedmixcon-cpu", **CHOSEN_RUNS)
    publish_study(study, config_copy / "before")
    rows = read_texts(config_copy / "before/claims.csv")
    claim = rows[(rows["table"] == "table3") & (rows["state"] == "undecided")]["claim"].iloc[0]
    reason = "At a third of the rate it agrees."
    assert reason not in (config_copy / "before/README.md").read_text(encoding="utf-8")
    file.write_text(text.replace("train:\n", f"why: {{table3: {{{claim}: {reason}}}}}\ntrain:\n", 1))
    again = find_study("fedmixcon-cpu")
    again.figures = {}
    publish_study(again, config_copy / "after")
    page = (config_copy / "after/README.md").read_text(encoding="utf-8")
    number = rows.loc[rows["claim"] == claim, "number"].iloc[0]
    assert f"- **{number}, undecided.** {reason}" in section(page, "The paper's claims")


def test_the_scoreboard_and_the_gains_agree_with_the_tables(config_copy: Path) -> None:
    study = run_paper("fedmixcon-cpu", **CHOSEN_RUNS)
    paper = find_study("fedmixcon-cpu")
    runs = finished_runs(study)
    for width in ("page", "column"):
        with style.use_house_style():
            board = draw.draw_figure(runs, {**paper.figures["scoreboard"], "width": width})
            gains = draw.draw_figure(runs, {**paper.figures["gains"], "width": width})
            empty = draw.draw_figure(runs[:1], {**paper.figures["scoreboard"], "width": width, "of": {}})
            assert problems(board.figure) == problems(gains.figure) == problems(empty.figure) == []
    table = build_table(runs, paper.tables["table3"])
    compared = table[table["ours_gain"].notna() & table["paper_gain"].notna()]
    assert list(gains.frame["ours_gain"]) == list(compared["ours_gain"])
    assert {*gains.frame["method"]} == {"sce", "fedlsr"}
    same = int((compared["ours_gain"] * compared["paper_gain"] > 0).sum())
    assert f"{same} of {len(compared)} gains over FedAvg have the paper's sign." in gains.alt
    twice = {"table3": table, "again": table}  # a cell that two tables share counts once
    specs = dict.fromkeys(twice, complete_spec(paper.tables["table3"]))
    _, sentence = _describe_gains("fedmixcon", twice, specs, dict.fromkeys(twice, "Table 3"))
    assert sentence.endswith(f" {same} of {len(compared)}.")
    tables = {name: spec for name, spec in paper.tables.items() if spec["kind"] == "reproduction"}
    frames = {name: build_table(runs, spec) for name, spec in tables.items()}
    judged = judge_claims(frames, {name: complete_spec(spec) for name, spec in tables.items()})
    claims = [claim for claim in judged if not claim.reading]
    ours = board.frame[board.frame["reading"] == ""].drop_duplicates(["table", "claim", "column"])
    assert list(ours["ours"].dropna()) == [state for claim in claims for state in claim.ours.values()]
    lines = [line for axis in board.figure.axes for line in axis.get_lines()]
    signs = [line for line in lines if isinstance(line.get_marker(), str)]
    heads = [text.get_text() for text in board.figure.axes[0].texts]
    assert [head for head in heads if "noise" in head or "MNIST" in head] == [
        *("MNIST", "Fashion-MNIST"),
        *("noise 0.3", "noise 0.4", "noise 0.5") * 2,
    ]
    assert heads.count("3 classes a client") == heads.count("5 classes a client") == 6
    counts = Counter(claim.state for claim in claims)
    state_counts = ", ".join(f"{state} {counts[state]}" for state in (*STATES, NOT_RUN) if counts[state])
    state_counts = state_counts.replace(NOT_RUN, "no verdict")
    assert board.figure.get_suptitle().startswith(f"{len(claims)} claims: {state_counts}\n")
    assert [text.get_text() for text in empty.figure.texts] == ["No claim was run."]
    aside = {"table4": {**paper.figures["scoreboard"]["of"]["table4"], "void": "the width decides"}}
    void = draw.draw_figure(runs, {**paper.figures["scoreboard"], "of": aside})
    assert "Cross: void at this scale." in void.caption
    assert "Cross: void (the paper's own numbers" in board.caption
    assert len(signs) == 2 * sum(len(claim.ours) for claim in claims if claim.state != NOT_RUN)
    assert all(claim.says in board.alt for claim in claims if claim.state != NOT_RUN)
