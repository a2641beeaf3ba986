"""A lock that a process shares with the children it forks: free when the last of them is gone, however they ended.

filelock's locks are let go of in a forked child, so that workers that outlive a killed run would not hold its lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from fednoise_core.io import SpecError

__all__ = ["held", "hold", "release"]

POLL_SECONDS = 0.2


def hold(path: Path, patience: float = 0.0) -> int | None:
    """Take the lock in the file `path`, made if need be: a number for `release`, or None if another has had it for
    `patience` seconds. Raises SpecError where the file cannot be made, or the file system has no locks.
    """
    end = time.monotonic() + patience
    while True:
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)  # forks share it, programs do not
        except OSError as error:
            raise SpecError(f"{path}: no lock can be made here ({error.strerror})") from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(path, number):
                return number
            os.close(number)  # its last holder removed it while we opened it: the lock is in another file by now
            continue
        except BlockingIOError:
            os.close(number)
        except OSError as error:
            os.close(number)
            raise SpecError(
                f"{path}: this file system has no locks (flock: {error.strerror}); put the folder on another one"
            ) from error
        if time.monotonic() >= end:
            return None
        time.sleep(POLL_SECONDS)


def held(path: Path) -> bool:
    """Whether a process holds the lock in this file; a file system without locks counts as held."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)  # gives it back, if it was ours for that moment
    return False


def release(path: Path, number: int) -> None:
    """Give the lock back and remove its file."""
    path.unlink(missing_ok=True)  # while it is held, or another's new file would go
    os.close(number)


def _still_there(path: Path, number: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(number))
    except FileNotFoundError:
        return False
