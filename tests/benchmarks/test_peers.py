"""The comparison with other frameworks, with the two contenders that need no environment of their own."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as peers

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads /proc")


def row(steps=54, trained=1242, projections=(1.0, -2.0)):
    return {"steps": steps, "trained": trained, "moved": 2.0, "projections": list(projections)}


def test_contenders_with_other_results_are_listed():
    results = {"a": row(), "same": row(projections=(1.0, -2.0001)), "none": {"missing": "exit 1"}}
    assert list(peers.list_differences(results)) == []
    assert results["same"]["apart"] == pytest.approx(5e-5)
    results |= {"far": row(projections=(1.0, -2.01)), "lazy": row(steps=53), "nan": row(projections=(float("nan"), 0))}
    assert [line.split(":")[0] for line in peers.list_differences(results)] == ["far", "lazy", "nan"]


def test_a_contender_that_fails_says_why_and_the_others_go_on(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such module >&2\nexit 3\n")
    broken.chmod(0o755)
    pythons = {"plain": Path(sys.executable), "pfl": broken}
    results = peers.race(["pfl-research", "plain script"], pythons, {**peers.MINIATURE, "net": "mlp", "rounds": 2})
    assert results["pfl-research"] == {"missing": "exit 3: no such module"}
    assert results["plain script"]["steps"] == 2 * 3
    assert len(results["plain script"]["cpu_s"]) == 2


def test_this_library_and_the_plain_script_compute_the_same(tmp_path, monkeypatch, capsys):
    names = ["plain script", "fednoise", "fednoise, 2 workers"]
    pythons = dict.fromkeys(peers.LOCAL_PEERS, Path(sys.executable))
    rows = peers.race(names, pythons, {**peers.CHECK, "net": "small_cnn"})
    assert all(row["steps"] == 6 * 3 * 3 and row["trained"] == 3 * 3 * 2 * (30 + 23 + 16) for row in rows.values())
    assert all(row["loss_after"] < row["loss_before"] for row in rows.values())
    assert rows["fednoise"]["projections"] == rows["fednoise, 2 workers"]["projections"]
    # the command, which races them in each case once more, with what they said
    monkeypatch.setattr(peers, "race", lambda names, *_: {name: {**rows[name]} for name in names})
    out = tmp_path / "peers.json"
    result = peers.main(["--dry", "--turns=1", "--cases", "small_cnn", f"--out={out}"])
    assert json.loads(out.read_text()) == json.loads(json.dumps(result))
    assert result["differences"] == []
    assert set(result["check"]["small_cnn"]) == set(result["cases"]["small_cnn"]) == {*names}
    assert "| fednoise, 2 workers |" in capsys.readouterr().out
