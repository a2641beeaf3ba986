"""CPU time and memory of a process and all that it started, from /proc (Linux)."""

import contextlib
import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")  # a second, in the kernel's unit of CPU time


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on: the second, the name, may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree(root: int) -> list[int]:
    """`root` and its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it may have ended meanwhile
                children.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    pids = [root]
    for pid in pids:
        pids += children.get(pid, [])
    return pids


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, with that of children who ended and were waited for."""
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError, IndexError):
            total += sum(int(v) for v in _stat(pid)[11:15])
    return total / TICK


def memory_mb(root: int) -> tuple[float, int]:
    """MB of the tree and its processes. Pages that processes share count once; pages of program files do not count,
    since it depends on what else runs on the machine who is charged for them.
    """
    total, count = 0, 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1])
            count += 1
    return total * 1024 / 1e6, count
