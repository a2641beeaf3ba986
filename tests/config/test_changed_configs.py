"""Config files with one change each, drawn from a seed: each must plan, or be refused in one line that names the file.

Nothing is run. A change is a misspelt, missing or moved key, or another value of any kind.
"""

import contextlib
import copy
import datetime
import math
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.targets import Targets

ROOT = Path(__file__).parents[2]
MOST_SECONDS, LONGEST = 5.0, 1000
STUDIES = {"studies/quick.yaml": "paper", "papers/fedmixcon.yaml": "smoke"}  # file → scale
FILES = ("config.yaml", "catalogue.yaml", "datasets.yaml")
NAMES_FILE_AND_KEY = re.compile(r"config(/\S+\.yaml)?( at scale \S+)?: \S")
DEEP: list[Any] = [[]]
for _ in range(60):
    DEEP = [DEEP]
# replacements of a value
VALUES = (None, "", "x" * 5000, "../../x", "a; touch x", "ünï\n", -1, 0, 10**9, 10**30, 1e308, -0.5, math.nan, math.inf)
VALUES += (True, [], {}, {"a": {"b": 1}}, [1, "a"], DEEP, list(range(3000)), datetime.date(2026, 1, 1), b"\0")


def leaves(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to every value in a file, whole mappings and lists among them."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*keys, key)
        yield from leaves(part, (*keys, key))


def change(data: dict[str, Any], draw: random.Random) -> tuple[dict[str, Any], str]:
    """A copy with one change, and what was changed."""
    data = copy.deepcopy(data)
    *way, last = keys = draw.choice(list(leaves(data)))
    place = data
    for key in way:
        place = place[key]
    kind = draw.choice(["value", "value", "key", "gone", "wrapped", "sibling"])
    if kind == "key" and isinstance(place, dict):
        cut = draw.randrange(len(str(last)))
        place[f"{str(last)[:cut]}{str(last)[cut + 1 :]}"] = place.pop(last)
    elif kind == "gone":
        del place[last]
    elif kind == "wrapped":
        place[last] = draw.choice([[place[last]], {str(last): place[last]}, [place[last], place[last]]])
    elif kind == "sibling":
        place[last] = copy.deepcopy(draw.choice(list(place.values()) if isinstance(place, dict) else place))
    else:
        place[last] = draw.choice(VALUES)
    return data, f"{kind} {'.'.join(map(str, keys))}"


def plan() -> None:
    """Plan all studies, as the Snakefile does first."""
    targets = Targets(Project(read_yaml("config/config.yaml")))
    assert targets.project.catalogue
    assert targets.named_targets(targets.project.study_files)
    for name in targets.project.studies:
        targets.study_targets(name)


def count_refusals(cases: int, seed: int, folder: Path) -> tuple[int, list[str]]:
    """Change the config files in a folder, one value at a time.

    Args:
        cases: How many changes.
        seed: The seed that they are drawn from.
        folder: The working folder, which gets a copy of config/.

    Returns:
        How many changes were refused, and the cases that were neither planned nor refused as they should be.
    """
    shutil.copytree(ROOT / "config", folder / "config")
    draw, refused, wrong = random.Random(seed), 0, []
    for case in range(cases):
        study, scale = draw.choice(list(STUDIES.items()))
        config = {**read_yaml(ROOT / "config/config.yaml"), "scale": scale, "studies": [Path(study).stem]}
        (folder / "config/config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        file = folder / "config" / draw.choice([*FILES, study, study, "scales/smoke.yaml"])
        text = file.read_text(encoding="utf-8")
        data, change_made = change(read_yaml(file), draw)
        file.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), encoding="utf-8")
        start, message = time.process_time(), "config: planned"
        try:
            with contextlib.chdir(folder):
                plan()
        except (SpecError, ArtifactError) as error:
            message, refused = str(error), refused + 1
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
        seconds = time.process_time() - start
        lines = message.split("\n")  # one for each mistake
        named = all(NAMES_FILE_AND_KEY.match(line) and len(line) <= LONGEST for line in lines)
        if not named or seconds > MOST_SECONDS:
            wrong.append(f"{case}: {file.relative_to(folder)}: {change_made}: {message[:300]!r}, {seconds:.1f} s")
        file.write_text(text, encoding="utf-8")
    return refused, wrong


def test_a_changed_config_plans_or_is_refused_in_one_line(tmp_path: Path) -> None:
    refused, wrong = count_refusals(60, 25, tmp_path)
    assert not wrong, "\n".join(wrong)
    assert 20 < refused < 55
