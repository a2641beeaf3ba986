"""Enter a method into the leaderboard: train it alone, and show it beside all published methods.

fednoise leaderboard mymodule:MyMethod                         a class of yours, as it is
fednoise leaderboard fedprox mu=0.1 train.lr=0.03              a method by its name, with settings
fednoise leaderboard fedprox mu=0.01,0.1,1 --tune              first choose its rate, and among these values
fednoise leaderboard fedprox --settings sym40-iid,instance40   only where the name of a setting has one of these
fednoise leaderboard --choose                                  write config/tuned/leaderboard.yaml

FedAvg also runs once in each setting, to check that this machine gives the published numbers. To resume a stopped
command, repeat it. The results are in build/leaderboard/<method>, where they replace earlier ones of this method. See
docs/leaderboard.md.
"""

import argparse
import functools
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fednoise_core.index import read_json
from fednoise_core.io import ArtifactError, SpecError, json_digest, open_atomic
from fednoise_core.settings.variants import base_method, parse_settings
from workflow_scripts.config.overrides import nest_value
from workflow_scripts.config.project import STUDIES, Project
from workflow_scripts.config.yaml_file import ConfigPath, deep_merge, parse_yaml, read_yaml
from workflow_scripts.docgen.publish import RESULTS, finished_runs, publish_study
from workflow_scripts.docgen.published_runs import RUNS, read_packed, settings_digest, unpack_runs
from workflow_scripts.paths import OWN
from workflow_scripts.report.runs.frames import RUN, tabulate_results
from workflow_scripts.report.runs.names import describe_spec
from workflow_scripts.report.runs.run import RecordedRun, load
from workflow_scripts.report.text.cells import format_signed
from workflow_scripts.study.file_at_scale import TUNED, FileAtScale
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.study import Study

DIVERGES = "the training diverges"  # in the log of a run that failed because no update was finite
BOARD, TUNING, BASELINE = "leaderboard", "leaderboard-tuning", "fedavg"
METRIC = "last10_mean"
CLEAN = "clean"
FAR = 3.0  # standard deviations over seeds by which FedAvg here may differ from the published run
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?")  # a number in a variant's id
ENTRY = "entry"  # the subset of the runs that are trained for an entry
ENTRY_TEXT = """\
The runs of the other methods are the published ones, with the settings that agreed best with held-out noisy labels on
each data set. Gains are over the published runs of FedAvg, with the same labels and clients. docs/leaderboard.md says
how methods are tuned and judged."""
SHORT_TEXT = "Training at this scale is too short to judge a method. It shows that the method runs."
WRITTEN = "# Written by `fednoise leaderboard`.\n"
LABEL = "label="
FREE = ("lr", "momentum", "weight_decay", "clip", "optimiser", "augment")  # training settings that an entry may change
OUTPUTS = (".csv", ".md", ".tex", ".png")
HEADER = """# Data set → method → settings that agree best with held-out noisy labels (study leaderboard-tuning).
# Made by `fednoise leaderboard --choose`.
"""


def choose_settings(study: Study) -> dict[str, dict[str, Any]]:
    """Choose the settings of each swept method by its agreement with held-out noisy labels, for each data set.

    Only `valid_accuracy` of the finished runs is read. Methods with missing runs are left out. Settings whose training
    diverged are not chosen.

    Args:
        study: A study like leaderboard-tuning.

    Returns:
        Data set → method → the swept settings with the highest agreement. With equal agreement, the first ones.
    """
    chosen: dict[str, dict[str, Any]] = {}
    for runs, scores in _score_variants(study):
        best = runs[int(np.argmax(scores))]
        definition = study.find_definition("methods", best.method)[1]
        keys = dict.fromkeys(field.partition(".")[0] for field in parse_settings(best.method))
        chosen.setdefault(best.dataset, {})[base_method(best.method)] = {key: definition[key] for key in keys}
    return chosen


def describe_choice(study: Study) -> str:
    """Describe the chosen settings on each data set, their agreement, and values at an end of the tried range.

    Args:
        study: The study that tuned one method.
    """
    sentences = []
    for runs, scores in _score_variants(study):
        place = int(np.argmax(scores))
        values, ends = parse_settings(runs[place].method), []
        for key, value in values.items():
            tried = {parse_settings(run.method)[key] for run in runs}
            if len(tried) > 2 and all(NUMBER.fullmatch(text) for text in tried):
                ends += [f"{key}={value}"] if value in (min(tried, key=float), max(tried, key=float)) else []
        remaining = sorted(scores[:place] + scores[place + 1 :])
        span = " to ".join(dict.fromkeys(f"{100 * score:.1f}" for score in remaining[:1] + remaining[-1:]))
        sentences.append(
            f"On {describe_spec(runs[0].spec['dataset'], runs[0].dataset)} it ran with "
            f"{', '.join(f'{key}={value}' for key, value in values.items())}, whose agreement with held-out noisy "
            f"labels is {100 * scores[place]:.1f} %{f' (others: {span})' if span else ''}."
        )
        sentences += [f"No value beyond {' and '.join(ends)} was tried."] if ends else []
    return " ".join(sentences)


def _score_variants(study: Study) -> Iterator[tuple[list[PlannedRun], list[float]]]:
    """Yield the variants of each swept method on each data set with their scores, if all variants were run."""
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in study.runs:
        if parse_settings(run.method):
            groups.setdefault((run.dataset, base_method(run.method)), []).append(run)
    for runs in groups.values():
        scores = [score for run in runs if (score := _read_score(run)) is not None]
        if len(scores) == len(runs):
            yield runs, scores


def _read_score(run: PlannedRun) -> float | None:
    """Read the agreement of a run with held-out labels: 0 if it diverged, None if it was not run yet."""
    if run.plan.is_finished:
        return float(read_json(Path(run.folder, "summary.json"), ("valid_accuracy",))["valid_accuracy"] or 0)
    log = Path("logs/train", f"{run.folder.removeprefix('store/runs/')}.log")
    return 0.0 if log.exists() and DIVERGES in log.read_text(encoding="utf-8") else None


def write_tuned(chosen: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Write chosen settings to a file. The file's settings of other methods are kept."""
    earlier = read_yaml(file) if file.exists() else {}
    merged = {dataset: {**earlier.get(dataset, {}), **chosen.get(dataset, {})} for dataset in {**earlier, **chosen}}
    with open_atomic(file) as opened:
        opened.write(HEADER + yaml.safe_dump(merged, default_flow_style=None, sort_keys=True))


def parse_arguments(words: Sequence[str]) -> dict[str, list[Any]]:
    """Parse settings such as `mu=0.1,1`.

    Raises:
        SpecError: A word is not a setting, or is a training setting that entries may not change, such as the rounds.
    """
    settings = {}
    for word in words:
        key, sign, values = word.partition("=")
        if not sign or not key or not values:
            raise SpecError(f"{word}: expected a setting such as mu=0.1")
        section, name = f"{key}.".split(".")[:2]
        if section == "train" and name not in FREE:
            raise SpecError(
                f"{key}: all methods of the leaderboard train alike. Of the training settings an entry may set "
                f"{', '.join(f'train.{free}' for free in FREE)}"
            )
        settings[key] = parse_yaml(f"[{values}]", ConfigPath("fednoise leaderboard", (key,)))
    return settings


def select_blocks(
    grid: Sequence[Mapping[str, Any]], settings: set[tuple[str, str, str]], patterns: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Select blocks of the board's grid, one per setting.

    Args:
        grid: The grid.
        settings: The result of `list_settings`.
        patterns: Words. The name of a selected setting (data set, noise, partition) has one of them. If empty, all.

    Raises:
        SpecError: No name has a word, or no setting is left.
    """
    ids = [(block["datasets"][0], block["noises"][0], block["partitions"][0]) for block in grid]
    blocks = {"-".join(key): block for key, block in zip(ids, grid, strict=True) if key in settings}
    for word in patterns:
        if not any(word in name for name in blocks):
            raise SpecError(f"--settings {word}: in no name of a published setting: {', '.join(blocks)}")
    if not blocks:
        raise SpecError(
            f"{TUNED}/{BOARD}.yaml: FedAvg is tuned on no data set of this scale. Run {TUNING}_runs at it, then "
            "`fednoise leaderboard --choose` with the same --scale"
        )
    return [block for name, block in blocks.items() if not patterns or any(word in name for word in patterns)]


def list_settings(study: Study) -> set[tuple[str, str, str]]:
    """List the board's noisy settings with a published run of FedAvg. If none is published, those where it is tuned.

    Args:
        study: The study leaderboard.
    """
    digests = set(map(settings_digest, read_packed(find_published(study.project), may_be_missing=True).values()))
    planned = [run for run in study.runs if run.method == BASELINE and run.noise != CLEAN]
    return {
        (run.dataset, run.noise, run.partition) for run in planned if not digests or json_digest(run.spec) in digests
    }


def find_published(project: Project) -> Path:
    """Find the board's published runs at the project's scale.

    Raises:
        ArtifactError: The runs or their checksum are missing. Scales other than `paper` may lack both.
    """
    file = RESULTS / Path(project.results_folder(BOARD)).name / RUNS
    files = (file, file.with_name(f"{RUNS}.sha256"))
    lacking = [str(path) for path in files if not path.exists()]
    if lacking and (project.scale == "paper" or len(lacking) < len(files)):
        raise ArtifactError(f"{' and '.join(lacking)}: missing. Take it from git again")
    return file


def enter_method(
    board: Mapping[str, Any],
    id_: str,
    definition: Mapping[str, Any],
    grid: Sequence[Mapping[str, Any]],
    by_dataset: Mapping[str, Mapping[str, Any]],
    text: str,
) -> dict[str, Any]:
    """Make the contents of an entry's study: the board's settings and methods, and the entered method.

    Args:
        board: The contents of the study leaderboard.
        id_: The method's id.
        definition: Its name, which is registered or "module:Class", and its label.
        grid: The blocks of the board's grid in which the method runs.
        by_dataset: Its settings on each data set.
        text: The description for its page.
    """
    grid = [
        {
            **block,
            "settings": {**block.get("settings", {}), id_: dict(by_dataset.get(block["datasets"][0], {}))},
            "methods": [id_, *block["methods"]],
        }
        for block in grid
    ]
    noises = list(dict.fromkeys(block["noises"][0] for block in grid))
    subset = [
        {"methods": [id_], "noises": noises},
        {"methods": [BASELINE], "noises": noises, "seeds": board["seeds"][:1]},
    ]
    methods = {**board.get("methods", {}), id_: dict(definition)}
    used = {block["datasets"][0] for block in grid}
    outputs = {
        part: {
            key: spec for key, spec in board.get(part, {}).items() if not used.isdisjoint(spec.get("datasets") or used)
        }
        for part in ("tables", "figures")
    }
    return {
        **board,
        **outputs,
        "title": f"{definition['label']} on the leaderboard",
        "text": text,
        "methods": methods,
        "grid": grid,
        "subsets": {ENTRY: subset},
    }


def enter_tuning(
    tuning: Mapping[str, Any],
    id_: str,
    definition: Mapping[str, Any],
    datasets: Sequence[str],
    swept: Mapping[str, Any],
) -> dict[str, Any]:
    """Make the contents of the study that tunes an entry: FedAvg's learning rates, and values of its own settings."""
    block = next(block for block in tuning["grid"] if BASELINE in block["methods"])
    rates = tuning["methods"][BASELINE]["sweep"]
    methods = {id_: {**definition, "sweep": {**rates, **swept}}}
    return {
        **{key: value for key, value in tuning.items() if key not in ("tables", "subsets")},
        "title": f"{definition['label']}: settings for the leaderboard",
        "methods": methods,
        "grid": [{**block, "datasets": list(datasets), "methods": [id_]}],
    }


def compare_machines(local: Sequence[RecordedRun], published: Sequence[RecordedRun]) -> str:
    """Compare the runs of FedAvg that this machine made with the published ones of the same settings and seed.

    Args:
        local: Finished runs of FedAvg in this store.
        published: Published runs of FedAvg.

    Returns:
        A sentence that says by how much they differ.

    Raises:
        ArtifactError: In a setting they differ by more than `FAR` standard deviations of published FedAvg over seeds.
            Runs of the two machines are then not comparable.
    """
    if not published:
        return "No run of FedAvg with these settings is published, so this machine could not be checked."
    theirs = tabulate_results(published).set_index(RUN)[METRIC]
    ours = tabulate_results(local).set_index(RUN)[METRIC]
    gaps = (ours - theirs).dropna()
    spread = float(np.sqrt(theirs.groupby(level=RUN[:3]).var().mean()))
    if gaps.empty or np.isnan(spread):
        return "FedAvg is not published for these settings and three seeds, so this machine could not be checked."
    mean, settings = format_signed(float(gaps.mean()), 2), f"{len(gaps)} setting{'s' * (len(gaps) > 1)}"
    sentence = (
        f"FedAvg on this machine and the published runs differ by {gaps.abs().max():.2f} points at most (mean {mean}) "
        f"in {settings}; the deviation over seeds is {spread:.2f}."
    )
    if gaps.abs().max() > FAR * spread:
        raise ArtifactError(
            f"{sentence} That is more than {FAR:g} deviations, so runs of this machine cannot be compared with the "
            "published ones. Are torch and numpy those of requirements.lock?"
        )
    return sentence


def write_study(project: Project, name: str, content: Mapping[str, Any]) -> None:
    """Write a study's file. SpecError: the method or one of its settings is wrong, and nothing is written."""
    block = {**content, "grid": content["grid"][:1]}  # one block is enough to find an error, and names it once
    FileAtScale(project, ConfigPath("fednoise leaderboard"), block).check_contents()
    path = Path(STUDIES, f"{name}.yaml")
    if path.exists() and not path.read_text(encoding="utf-8").startswith(WRITTEN):
        raise SpecError(f"{path}: would be overwritten, and is not of this command. Rename the method's class")
    with open_atomic(path) as file:
        file.write(WRITTEN)
        plain = json.loads(json.dumps(content))  # no shared parts, which YAML would write as aliases
        yaml.safe_dump(plain, file, sort_keys=False, allow_unicode=True, width=120)


def make_runs(name: str, cores: str, config: Sequence[str], *, check: bool = True) -> None:
    """Make the runs of a study by Snakemake. SpecError: Snakemake failed, and `check` is true."""
    command = [sys.executable, "-m", "snakemake", "--cores", cores, f"{name}_runs", "--config", *config]
    if subprocess.run(command, check=False).returncode and check:
        raise SpecError(f"{name}: not all runs were made; the messages above say why. The same command goes on")


def show_entry(study: Study, out: Path) -> str:
    """Compare an entry with the published methods, and write its page, tables and figure.

    Args:
        study: The entry's study.
        out: The folder to write to.

    Returns:
        Sentences on the entry's result, and on the difference between this machine's numbers and the published ones.

    Raises:
        ArtifactError: The numbers differ too much (`compare_machines`), or the published runs are damaged.
    """
    published = find_published(study.project)
    planned = {json_digest(run.spec) for run in study.runs if run.method == BASELINE}
    earlier = read_packed(published, may_be_missing=True)
    packed = {name: run for name, run in earlier.items() if settings_digest(run) in planned}
    with tempfile.TemporaryDirectory() as folder:
        listed = finished_runs(study, unpack_runs(packed, Path(folder)), {BASELINE})
        theirs = [run for run in listed if run.method == BASELINE and Path(folder) in run.dir.parents]
        ours = [run for run in finished_runs(study) if run.method == BASELINE]
        sentence = compare_machines(load(ours), load(theirs))
    written = publish_study(study, out, out / "report.html", published, sentence)
    for file in set(out.iterdir()) - set(written):
        if file.suffix in OUTPUTS:  # of an earlier entry, with other settings
            file.unlink()
    _, summary, *_ = (out / "README.md").read_text(encoding="utf-8").split("\n\n")
    return f"{summary}\n{sentence}".replace(". ", ".\n")


def define_entry(method: str, values: Sequence[str], published: Study) -> dict[str, str]:
    """Define an entered method: its name, and its label, by default the name of its class.

    Args:
        method: "module:Class", or the name of a method.
        values: Arguments of the command.
        published: The leaderboard.

    Raises:
        SpecError: Another method has this label.
    """
    labels = [method.rpartition(":")[2], *(word.removeprefix(LABEL) for word in values if word.startswith(LABEL))]
    if any(run.label == labels[-1] for run in published.runs):
        raise SpecError(
            f"label: a published method is called {labels[-1]!r}. Add {shlex.quote(f'{LABEL}My {labels[-1]}')}"
        )
    return {"name": method, "label": labels[-1]}


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="?", help="module:Class, or the name of a method")
    parser.add_argument("values", nargs="*", metavar="KEY=VALUE", help="its settings; several values with --tune")
    parser.add_argument("--settings", default="", help="words in the names of settings, separated by commas")
    parser.add_argument("--tune", action="store_true", help="choose its learning rate and settings first")
    parser.add_argument(
        "--choose", action="store_true", help="write the settings that the study leaderboard-tuning chose"
    )
    parser.add_argument("--scale", default="paper", help="paper, or smoke for a test run")
    parser.add_argument("--cores", default="all", help="how many cores to use (default: all)")
    args = parser.parse_intermixed_args(arguments)

    def make_study(name: str) -> Study:
        return Study(Project.load(scale=args.scale), name)

    if args.choose:
        write_tuned(choose_settings(make_study(TUNING)), Path(TUNED, f"{BOARD}.yaml"))
        return 0
    if not args.method:
        parser.error("name a method")
    class_name = args.method.rpartition(":")[2]
    slug = re.sub(r"[^a-z0-9]+", "_", class_name.lower())
    name, id_ = f"{BOARD}-{slug}", f"{OWN}{slug}"
    values = parse_arguments([word for word in args.values if not word.startswith(LABEL)])
    board, tuning = (read_yaml(Path(STUDIES, f"{study}.yaml")) for study in (BOARD, TUNING))
    config = [f"scale={args.scale}"]
    patterns = list(filter(None, args.settings.split(",")))
    published = make_study(BOARD)
    definition = define_entry(args.method, args.values, published)
    grid = select_blocks(board["grid"], list_settings(published), patterns)
    datasets = list(dict.fromkeys(block["datasets"][0] for block in grid))
    if args.tune:
        write_study(published.project, f"{name}-tuning", enter_tuning(tuning, id_, definition, datasets, values))
        make_runs(f"{name}-tuning", args.cores, config, check=False)  # some values may make the training diverge
        tuned = make_study(f"{name}-tuning")
        by_dataset = {dataset: settings[id_] for dataset, settings in choose_settings(tuned).items()}
        if len(by_dataset) < len(datasets):
            raise SpecError(f"{name}-tuning: not all runs were made; the messages above say why")
        text = (
            f"{definition['label']} was tuned as the other methods were"
            f"{', but with other rates' if 'train.lr' in values else ''}. {describe_choice(tuned)}"
        )
    else:
        if several := [key for key, value in values.items() if len(value) > 1]:
            raise SpecError(f"{several[0]}: several values need --tune")
        settings: dict[str, Any] = functools.reduce(
            deep_merge, (nest_value(key, value) for key, (value,) in values.items()), {}
        )
        by_dataset = dict.fromkeys(datasets, settings)
        listed = ", ".join(f"{key}={value}" for key, (value,) in values.items()) or "its default settings"
        text = f"{definition['label']} was not tuned as the other methods were. It ran with {listed}."
    note = f"\n\n{ENTRY_TEXT if find_published(published.project).exists() else SHORT_TEXT}"
    write_study(published.project, name, enter_method(board, id_, definition, grid, by_dataset, text + note))
    print(text, flush=True)
    make_runs(name, args.cores, [*config, f"subset={ENTRY}"])
    study = make_study(name)
    out = Path("build", BOARD, Path(study.root).name.removeprefix(f"{BOARD}-"))  # each scale has its own folder
    print(show_entry(study, out))
    print(f"{out}: report.html, and the tables as CSV, Markdown and LaTeX")
    return 0
