"""The comparison with other frameworks, with the two contenders that need no environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers.tree import cpu_seconds, memory_mb, tree
from benchmarks.peers.work import Work

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads /proc")


def row(steps=54, trained=1242, projections=(1.0, -2.0)):
    return {"steps": steps, "trained": trained, "moved": 2.0, "projections": list(projections)}


def test_contenders_that_compute_something_else_are_named():
    found = {"a": row(), "same": row(projections=(1.0, -2.0001)), "none": {"missing": "exit 1"}}
    assert list(peers.differences(found)) == []
    assert found["same"]["apart"] == pytest.approx(5e-5)
    found |= {"far": row(projections=(1.0, -2.01)), "lazy": row(steps=53), "nan": row(projections=(float("nan"), 0))}
    assert [said.split(":")[0] for said in peers.differences(found)] == ["far", "lazy", "nan"]


def test_ratios_are_taken_within_a_turn():
    def of(cpu, wall):
        return {
            "cpu_s": cpu, "round_s": wall, "setup_s": 1, "warm_up_s": 2, "peak_mb": 3, "processes": 1, "steps": 7,
            "loss_before": 2.3, "loss_after": 2.0,
        }  # fmt: skip

    found = {"plain script": of([1.0, 3.0, 9.0], [2.0, 6.0, 9.0]), "peer": of([0.5, 1.0, 9.0], [1.0, 1.5, 3.0])}
    rows = peers.summary({**found, "ill": {"missing": "killed"}})
    assert rows["peer"]["speed_cpu"] == [2.0, 1.0, 3.0]
    assert rows["peer"]["speed_wall"] == [3.0, 2.0, 4.0]
    assert rows["plain script"]["cpu_s"] == 3.0
    assert rows["ill"] == {"missing": "killed"}
    assert "speed_cpu" not in peers.summary({"peer": found["peer"]})["peer"]
    assert "| ill | killed |" in "\n".join(peers.tables({"case": rows}))


def test_a_contender_that_fails_says_why_and_the_others_go_on(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such module >&2\nexit 3\n")
    broken.chmod(0o755)
    pythons = {"plain": Path(sys.executable), "pfl": broken}
    found = peers.race(["pfl-research", "plain script"], pythons, {**peers.DRY, "net": "mlp", "rounds": 2})
    assert found["pfl-research"] == {"missing": "exit 3: no such module"}
    assert found["plain script"]["steps"] == 2 * 3
    assert len(found["plain script"]["cpu_s"]) == 2


CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
GRANDCHILD = """
import time
while time.process_time() < 0.3: pass
kept = bytearray(b"1" * 50_000_000)
print("burnt", flush=True)
input()
"""


def test_the_tree_counts_descendants():
    command = [sys.executable, "-c", CHILD, GRANDCHILD]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "burnt\n"
        assert len(tree(process.pid)) == 2
        assert cpu_seconds(process.pid) >= 0.3
        megabytes, count = memory_mb(process.pid)
        assert count == 2
        assert 50 < megabytes < 150
    finally:
        process.communicate("\n")


def test_clients_hold_stretches_that_overlap_only_where_they_must():
    apart = Work(clients=4, samples=5, pool=20).parts
    assert apart == [slice(0, 5), slice(5, 10), slice(10, 15), slice(15, 20)]
    many = Work(clients=1000, samples=60, pool=600).parts
    assert all(p.stop <= 600 and p.stop - p.start == 60 for p in many)
    assert {p.stop - p.start for p in Work(clients=6, samples=30, uneven=True).parts} == {30, 23, 16}


def test_this_library_and_the_plain_script_compute_the_same(tmp_path):
    out = tmp_path / "peers.json"
    command = [sys.executable, "-m", "benchmarks.peers", "--dry", "--turns=1", "--cases", "small_cnn", f"--out={out}"]
    root = Path(__file__).parents[1]
    said = subprocess.run(command, check=True, cwd=root, env={**os.environ}, capture_output=True, text=True).stdout
    found = json.loads(out.read_text())
    assert found["differences"] == []
    for rows in found["check"].values():
        assert set(rows) == {"plain script", "fednoise", "fednoise, 2 workers"}
        assert all(row["steps"] == 6 * 3 * 3 and row["trained"] == 3 * 3 * 2 * (30 + 23 + 16) for row in rows.values())
        assert all(row["loss_after"] < row["loss_before"] for row in rows.values())
        assert rows["fednoise"]["projections"] == rows["fednoise, 2 workers"]["projections"]
    assert "| fednoise, 2 workers |" in said
