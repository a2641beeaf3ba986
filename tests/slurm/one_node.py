"""A Slurm cluster of one node on the loopback, for as long as a `with` lasts. Debian, as root.

Installed packages stay. The daemons and the configuration are removed at the end, also after an error.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONFIG = Path("/etc/slurm/slurm.conf")  # jobs look for it there only
MARK = "# one node on the loopback, for a test"
PATIENCE = 60.0  # seconds until daemons answer

TEMPLATE = """\
{mark}
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=1,sched_interval=2
KillWait=30
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=1-0 State=UP
"""


@contextlib.contextmanager
def one_node() -> Iterator[Path]:
    """The cluster; gives the folder of the daemons' logs. Exits with a message where it cannot be made."""
    _install()
    if CONFIG.exists() and not CONFIG.read_text().startswith(MARK):
        sys.exit(f"{CONFIG} is there and not ours: this machine belongs to a cluster already")
    with contextlib.ExitStack() as end:
        folder = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="one-node-")))
        _munge(folder, end)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        host = socket.gethostname().split(".")[0]
        facts = {"mark": MARK, "host": host, "folder": folder, "cpus": os.cpu_count(), "memory": memory * 9 // 10}
        CONFIG.parent.mkdir(parents=True, exist_ok=True)
        CONFIG.write_text(TEMPLATE.format(**facts))
        end.callback(CONFIG.unlink)
        for daemon in ("slurmctld", "slurmd"):
            _start([daemon, "-D"], folder, end)
        _wait_for(["sinfo", "-h", "-o", "%T"], "idle", folder)
        end.callback(subprocess.run, ["scancel", "-u", "root", "--full"], check=False)
        yield folder


def _install() -> None:
    """Install Slurm and munge, unless they are there."""
    if os.getuid() != 0:
        sys.exit("this test starts the daemons of a cluster: run it as root, in a container for example")
    if all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "srun", "munged"))):
        return
    if shutil.which("apt-get") is None:
        sys.exit("slurmctld, slurmd, sbatch, srun or munged is missing, and there is no apt-get to install it with")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ("update", "install -y --no-install-recommends slurm-wlm munge"):
        subprocess.run(["apt-get", "-qq", *command.split()], env=env, check=True, stdout=subprocess.DEVNULL)


def _munge(folder: Path, end: contextlib.ExitStack) -> None:
    """Start munged, by which Slurm's programs authenticate, unless one answers already."""
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0:
        return
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.write_bytes(os.urandom(1024))
    for place in (key.parent, Path("/run/munge"), Path("/var/log/munge"), Path("/var/lib/munge")):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o755 if place.name == "munge" and place.parent.name == "run" else 0o700)
        shutil.chown(place, "munge", "munge")
    key.chmod(0o400)
    shutil.chown(key, "munge", "munge")
    _start(["runuser", "-u", "munge", "--", "munged", "--foreground"], folder, end)
    _wait_for(["munge", "-n"], "MUNGE", folder)


def _start(command: list[str], folder: Path, end: contextlib.ExitStack) -> None:
    """Start a daemon in the foreground. It ends with the test."""
    with open(folder / f"{Path(command[-2]).name}.out", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    end.callback(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(command: list[str], word: str, folder: Path) -> None:
    """Repeat a command until its output holds `word`."""
    end = time.monotonic() + PATIENCE
    while word not in (answer := subprocess.run(command, capture_output=True, text=True, check=False).stdout):
        if time.monotonic() > end:
            logs = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(folder.glob("*.[lo][ou]*")))
            sys.exit(f"{' '.join(command)}: {answer.strip() or 'no answer'} after {PATIENCE:.0f} s\n{logs}")
        time.sleep(0.5)
