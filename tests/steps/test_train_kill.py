"""kill -9 of real training processes at different rounds: in the end the files are those of an undisturbed run."""

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy
from fork_train import ENVIRONMENT, forking_parent, rounds

from fednoise_core.testing.test_contract import FILES

ROOT = Path(__file__).parents[2]
KILLS = [(2, 0.0), (4, 0.01), (6, 0.03)]  # (round, seconds after it was reported): before, while or after it is saved
KEEP = ("scaffold", "feddyn", "feddyn_efc", "ditto", "fedmd", "local")  # methods whose clients keep a state
LONGER = {"fedcorr": {"iterations": 2, "tune_rounds": 3, "full_rounds": 4}}


@dataclasses.dataclass
class Setting:
    """The inputs and folders of a run."""

    folder: Path
    inputs: dict[str, str]
    name: str
    keep_mb: int = 2048
    code: str | None = None  # a hash in place of the code's
    executor: str = "sequential"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def progress(self) -> Path:
        return self.folder / "work" / "progress.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "work" / "checkpoint.pt"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def argv(self) -> list[str]:
        method, train = toy.settings(self.name, rounds=9, epochs=12, lr=0.05)
        spec = {"method": {**method, **LONGER.get(self.name, {})}, "train": train, "seed": 0}
        files = [f"--{name}={file}" for name, file in self.inputs.items()]
        return [
            "--spec",
            json.dumps(spec),
            *files,
            f"--out={self.out}",
            f"--work={self.folder / 'work'}",
            "--device=cpu",
            "--checkpoint-rounds=1",
            f"--keep-mb={self.keep_mb}",
            f"--executor={self.executor}",
        ]

    def order(self, kill: tuple[int, float] | None = None) -> dict[str, Any]:
        """The order that the forking parent gets."""
        self.folder.mkdir(exist_ok=True, parents=True)
        return {
            "argv": self.argv(),
            "progress": str(self.progress),
            "log": str(self.folder / "log"),
            "code": self.code,
            "kill": kill and [*kill, signal.SIGKILL],
        }


@pytest.fixture(scope="module")
def parent() -> Iterator[Any]:
    """Runs one training process to its end, killed or not, and returns its exit code."""
    with forking_parent() as run:
        yield lambda setting, kill=None: run(setting.order(kill))


def assert_same_files(first: Path, second: Path) -> None:
    expected = {*FILES, "cost.json", "SHA256SUMS"}
    assert {p.name for p in first.iterdir()} == {p.name for p in second.iterdir()} == expected
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@pytest.mark.parametrize("name", toy.KINDS)  # the others are resumed by the contract suite, in its own process
def test_killed_at_three_rounds_and_resumed_equals_undisturbed(name, inputs, parent, tmp_path):
    undisturbed = Setting(tmp_path / "whole", inputs, name)
    assert parent(undisturbed) == 0, undisturbed.log
    for trial in range(3):  # a busy machine may notice a round only when the run is over
        broken = Setting(tmp_path / f"broken{trial}", inputs, name, keep_mb=0)  # clients' states lie in a file
        reached = []
        for kill in KILLS:
            code = parent(broken, kill)
            if code != -signal.SIGKILL:
                break
            reached.append(max(rounds(broken.progress)))
            assert broken.checkpoint.exists()
            assert name not in KEEP or list(broken.checkpoint.parent.glob("*.kept"))
            assert not list(broken.out.glob("*.parquet"))
        if len(set(reached)) == len(KILLS):
            break
    assert len(set(reached)) == len(KILLS), f"killed after rounds {reached}"
    assert parent(broken) == 0, broken.log
    assert broken.log.count("resumed from round") == len(KILLS)
    assert undisturbed.log.count("resumed from round") == 0
    assert json.loads((broken.out / "cost.json").read_text())["resumed"] >= reached[-1] - 1
    assert_same_files(undisturbed.out, broken.out)
    assert [path.name for path in broken.progress.parent.iterdir()] == ["lock"]


def test_a_plain_command_killed_and_given_again(inputs, parent, tmp_path):
    """python -m workflow_scripts.steps train, as a workflow starts it."""
    name = "fedavg"
    undisturbed, broken = Setting(tmp_path / "whole", inputs, name), Setting(tmp_path / "broken", inputs, name)
    assert parent(undisturbed) == 0
    command = [sys.executable, "-m", "workflow_scripts.steps", "train", *broken.argv()]
    for _ in range(3):
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        while process.poll() is None and max(rounds(broken.progress), default=0) < 2:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.wait() == -signal.SIGKILL and broken.checkpoint.exists():
            break
    assert process.returncode == -signal.SIGKILL
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "resumed from round" in done.stdout
    assert_same_files(undisturbed.out, broken.out)


def test_other_settings_or_code_start_afresh(inputs, parent, tmp_path):
    broken = Setting(tmp_path / "broken", inputs, "fedavg")
    assert parent(broken, (2, 0.0)) == -signal.SIGKILL
    assert broken.checkpoint.exists()
    broken.code = "def"
    assert parent(broken) == 0
    assert "resumed" not in broken.log
    undisturbed = Setting(tmp_path / "whole", inputs, "fedavg", code="def")
    assert parent(undisturbed) == 0
    assert_same_files(undisturbed.out, broken.out)


def test_a_damaged_checkpoint_is_named_and_the_run_starts_over(inputs, parent, tmp_path):
    """Starting over gives the same bytes."""
    undisturbed = Setting(tmp_path / "whole", inputs, "fedavg")
    assert parent(undisturbed) == 0
    broken = Setting(tmp_path / "broken", inputs, "fedavg")
    assert parent(broken, (3, 0.02)) == -signal.SIGKILL
    content = broken.checkpoint.read_bytes()
    broken.checkpoint.write_bytes(content[: len(content) // 2])
    assert parent(broken) == 0
    assert "checkpoint.pt: damaged checkpoint" in broken.log
    assert "the run starts from round 0" in broken.log
    assert_same_files(undisturbed.out, broken.out)


@pytest.mark.parametrize("artifact", ["arrays", "labels", "partition"])
def test_a_damaged_input_is_named(artifact, inputs, parent, tmp_path):
    damaged = tmp_path / f"{artifact}.npz"
    damaged.write_bytes(Path(inputs[artifact]).read_bytes()[:-40])
    setting = Setting(tmp_path / "run", {**inputs, artifact: str(damaged)}, "fedavg")
    assert parent(setting) == 2
    assert f"{artifact}.npz: damaged {artifact} artifact" in setting.log
    assert "Traceback" not in setting.log
