"""A lock that a process shares with its forked children. It is released when the last of them has ended in any way.

A forked child releases filelock's locks, so workers that outlive a killed run would not hold the run's lock.
"""

import fcntl
import os
import time
from pathlib import Path

from fednoise_core.io import SpecError

POLL_SECONDS = 0.2


def acquire_lock(path: Path, patience: float = 0.0) -> int | None:
    """Acquire the lock in a file. The file is created if necessary.

    Args:
        path: The file.
        patience: Seconds to wait for another process.

    Returns:
        A file descriptor (`os.close` releases the lock), or None if another process still holds the lock.

    Raises:
        SpecError: The file system has no locks.
    """
    end = time.monotonic() + patience
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # shared with forks, but not with started programs
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(number)
                return None
            time.sleep(POLL_SECONDS)
        except OSError as error:
            problem = f"this file system has no locks (flock: {error.strerror}). Put the folder on another one"
            raise SpecError(f"{path}: {problem}") from error
        else:
            return number


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock in this file. A file system without locks counts as locked."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)  # releases the lock if it was acquired here
    return False
