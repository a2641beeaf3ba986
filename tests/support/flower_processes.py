"""A SuperLink and SuperNodes of Flower as processes on the loopback."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from fednoise_core.flower.folders import write_app

ROOT = Path(__file__).parents[2]


class Processes:
    """The processes of a federation. As a context it ends them.

    Args:
        out: Has the folders `server` and `site-<number>`.
        deadline: Seconds in which sites answer.
        secure: Encrypt messages and authenticate nodes.
    """

    def __init__(self, out: Path, deadline: float = 120.0, secure: bool = False):
        self.out, self.nodes = out, {}
        self._commands = Path(sys.executable).parent
        self._files, self._started = [], []
        self._address = f"127.0.0.1:{find_free_port()}"
        self.node_address = self._address  # to which nodes connect
        write_app(out / "app", out / "server", deadline, wait=120.0)
        (out / "home").mkdir(exist_ok=True)
        self._link_options, self._node_options, trust = ["--insecure"], ["--insecure"], "insecure = true"
        if secure:
            keys = make_certificates(out / "keys")
            pair = ["--ssl-certfile", f"{keys}/server.pem", "--ssl-keyfile", f"{keys}/server.key"]
            self._link_options = ["--ssl-ca-certfile", f"{keys}/ca.crt", *pair, "--enable-supernode-auth"]
            self._node_options = ["--root-certificates", f"{keys}/ca.crt"]
            trust = f'root-certificates = "{keys}/ca.crt"'
        (out / "home" / "config.toml").write_text(f'[superlink.here]\naddress = "{self._address}"\n{trust}\n')

    def __enter__(self):
        (self.out / "link.log").unlink(missing_ok=True)  # of a server that was killed
        host, _, port = self._address.partition(":")
        self.start("flower-superlink", *self._link_options, "--host", host, "--port", port, log="link")
        self.wait_for_log("link", "Uvicorn running on")
        return self

    def __exit__(self, *error):
        for process in reversed(self._started):  # the server last
            kill_group(process)
        for file in self._files:
            file.close()

    def start_node(self, client: int, *options: str, user: int | None = None) -> None:
        site = self.out / f"site-{client}"
        self.nodes[client] = self.start(
            *("flower-supernode", *self._node_options, "--superlink", self.node_address),
            *("--port", str(find_free_port()), "--node-config", f'site="{site}"', *options),
            log=site.name,
            user=user,
        )

    def start_app(self) -> subprocess.Popen:
        """Start the run. Its log is `run`."""
        return self.start("flwr", "run", str(self.out / "app"), "here", "--stream", log="run")

    def run_app(self) -> str:
        """Start the run, wait for its end, and return its log."""
        assert self.start_app().wait(1200) == 0  # RHFL exchanges messages before each step
        return self.read_log("run")

    def read_log(self, name: str) -> str:
        return (self.out / f"{name}.log").read_text()

    def wait_for_log(self, name: str, text: str, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.read_log(name):
            assert time.monotonic() < end, f"{name}.log never said {text!r}:\n{self.read_log(name)[-3000:]}"
            time.sleep(0.1)

    def start(self, command: str, *options: str, log: str, user: int | None = None) -> subprocess.Popen:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
        env = {
            **os.environ,
            "PATH": f"{self._commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": paths,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str(self.out / "home") if command == "flwr" else str(self.out / f"home-{log}"),
        }
        file = open(self.out / f"{log}.log", "a")  # noqa: SIM115 (closed with the processes)
        self._files.append(file)
        line = [str(self._commands / command), *options]
        process = subprocess.Popen(line, env=env, stdout=file, stderr=file, start_new_session=True, user=user)
        self._started.append(process)
        return process


class CountingProxy:
    """Forwards connections to an address, and counts the bytes from those who connect (`up`) and to them (`down`)."""

    def __init__(self, target: str):
        self.up = self.down = 0
        self._target, self._lock = target.split(":"), threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept_connections, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)

    def _accept_connections(self) -> None:
        with contextlib.suppress(OSError), self._server:  # of `close`
            while True:
                client, server = self._server.accept()[0], socket.create_connection(self._target)
                for source, sink, side in ((client, server, "up"), (server, client, "down")):
                    threading.Thread(target=self._forward, args=(source, sink, side), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, side: str) -> None:
        with contextlib.suppress(OSError), source:  # of a process that was ended
            while data := source.recv(1 << 16):
                with self._lock:
                    setattr(self, side, getattr(self, side) + len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def make_certificates(folder: Path) -> Path:
    """Make the certificates of a server on the loopback, and a key pair for each of four nodes."""
    folder.mkdir()
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for line in (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=test -days 2",
        "openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
        "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.pem -extfile names",
        *(f"ssh-keygen -q -t ecdsa -b 384 -N  -f node{c}" for c in range(4)),
    ):
        subprocess.run(line.split(" "), cwd=folder, check=True, capture_output=True)
    return folder


def kill_group(process: subprocess.Popen) -> None:
    """Kill a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def find_free_port() -> int:
    """Find a port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
