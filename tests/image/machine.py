"""Runs containers without an engine, from the image's root directory, in namespaces created with `unshare` and `ip`.

The test process plays the role of the host. It runs in a separate network namespace whose bridge is the gateway of all
containers, as in Docker. `published` forwards a port of the host like Docker's proxy. Each container has its own
processes, mounts, host name and network. The entry point is process 1, as in Docker. Root privileges are required.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection
from pathlib import Path

GATEWAY, NETWORK_BITS = "172.31.0.1", 24
BRIDGE = "docker0"
DATA = "/var/lib/kafka/data"
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Image:
    """The root directory and configuration of an image built by buildah."""

    root: Path
    entry_point: tuple[str, ...]
    health_check: tuple[str, ...]
    user: int
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    stop_signal: str
    volumes: tuple[str, ...]

    @classmethod
    def built(cls) -> Image:
        described = json.loads(Path(os.environ["IMAGE_CONFIG"]).read_text())["Docker"]["config"]
        return cls(
            root=Path(os.environ["IMAGE_ROOT"]),
            entry_point=tuple(described["Entrypoint"]),
            health_check=tuple(described["Healthcheck"]["Test"][1:]),
            user=int(described["User"]),
            environment=dict(pair.split("=", 1) for pair in described["Env"]),
            labels=described["Labels"],
            stop_signal=described.get("StopSignal", "SIGTERM"),
            volumes=tuple(described["Volumes"]),
        )


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@cache
def make_network() -> None:
    """Creates the bridge, once per process. The process's network namespace must be empty before the call."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{GATEWAY}/{NETWORK_BITS}", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


@dataclass
class Container:
    """A container with the `docker run` options that the tests need."""

    image: Image
    work: Path
    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    volume: Path | None = None
    mounts: Mapping[str, Path] = field(default_factory=dict)  # the path on the host, by path in the container
    # The addresses of other containers by name, as in an engine's name service.
    knows: Mapping[str, str] = field(default_factory=dict)
    hostname: str = "broker"
    address: str = "172.31.0.2"
    user: str = ""  # "uid:gid", or empty for the image's user in group 0
    is_read_only: bool = False
    ports: Sequence[tuple[int, int]] = ((9092, 9092),)  # pairs of the port on the host and the port in the container
    entry_point: Sequence[str] | None = None  # None for the image's entry point

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        self.log_file = self.work / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._network = f"c{self.address.rpartition('.')[2]}"
        self._published = contextlib.ExitStack()
        self.started_at = 0.0

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def pid(self) -> int:
        """Returns the id that the container's process 1 has on the host. The process may still be preparing the
        mounts."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := children.read_text().split()):
            assert self.is_running(), f"the container has ended:\n{self.log}"
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return int(found[0])

    @property
    def running_pid(self) -> int:
        """Like `pid`, but waits until process 1 is in the container's root directory.

        An engine runs nothing else in a container before that point.
        """
        pid = self.pid
        deadline = time.monotonic() + START_TIMEOUT_S
        while os.readlink(f"/proc/{pid}/root") == "/":
            assert self.is_running(), f"the container has ended:\n{self.log}"
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return pid

    def start(self) -> None:
        make_network()
        self._make_link()
        for outside, inside in self.ports:
            self._published.enter_context(published(self.address, inside, at=outside))
        for name in ("upper", "overlay", "merged"):
            (self.work / name).mkdir(exist_ok=True)
        merged = self.work / "merged"
        hosts = self.work / "hosts"
        names = {"localhost": "127.0.0.1", self.hostname: self.address, **self.knows}
        hosts.write_text("".join(f"{address} {name}\n" for name, address in names.items()))
        layers = f"lowerdir={self.image.root},upperdir={self.work}/upper,workdir={self.work}/overlay"
        mounts = {**self.mounts, **({} if self.volume is None else {DATA: self.volume})}
        for target, source in mounts.items():
            if not source.exists():
                self._create_volume(source, target)
        entry_point = self.image.entry_point if self.entry_point is None else self.entry_point
        binds = {"/etc/hosts": hosts, "/dev": Path("/dev"), **mounts}
        script = [
            "mount --make-rprivate /",
            f"mount -t overlay overlay -o {layers} {merged}",
            *(
                f"mkdir -p {merged}{os.path.dirname(target)} && touch {merged}{target}"
                if source.is_file()
                else f"mkdir -p {merged}{target}"
                for target, source in self.mounts.items()
            ),
            *(f"mount --rbind {source} {merged}{target}" for target, source in binds.items()),
            f"mount -t proc proc {merged}/proc",
            *([f"mount -o remount,bind,ro {merged}"] if self.is_read_only else []),
            f"hostname {self.hostname}",
            "exec " + self._in_root(merged, [*entry_point, *self.words], self.environment),
        ]
        namespaces = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        with open(self.log_file, "ab") as log:
            self.started_at = time.monotonic()
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self._network, *namespaces, "sh", "-ec", "\n".join(script)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_for(self, words: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until the log contains the text."""
        deadline = time.monotonic() + timeout_s
        while words not in self.log:
            assert self._process is not None
            assert self._process.poll() is None, f"the container has ended:\n{self.log}"
            assert time.monotonic() < deadline, f"{words!r} is not in its log:\n{self.log}"
            time.sleep(0.01)

    def wait_until_healthy(self, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while (checked := self.execute(*self.image.health_check)).returncode != 0:
            assert time.monotonic() < deadline, f"{checked.stderr}\n{self.log}"
            time.sleep(0.1)

    def execute(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command in the container, like `docker exec`."""
        merged = self.work / "merged"
        inside = self._in_root(merged, words, self.environment if environment is None else environment)
        enter = ["nsenter", "--target", str(self.running_pid), "--mount", "--pid", "--uts", "--net", "sh", "-c", inside]
        return subprocess.run(enter, capture_output=True, text=True, timeout=60, check=False)

    def copy_in(self, content: str, path: str, mode: int = 0o755) -> None:
        """Creates a file in the running container as root, like `docker cp`, which Testcontainers uses."""
        inside = shlex.quote(f"{self.work / 'merged'}{path}")
        script = f"cat > {inside} && chmod {mode:o} {inside}"
        enter = ["nsenter", "--target", str(self.running_pid), "--mount", "sh", "-c", script]
        subprocess.run(enter, input=content, text=True, timeout=60, check=True)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, name: str) -> None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, AssertionError):
            os.kill(self.pid, getattr(signal, name))

    def stop(self, timeout_s: float = 30.0) -> int:
        """Stops the container like `docker stop` and returns its exit status. Kills the container if it is still
        running after `timeout_s`."""
        assert self._process is not None
        self.signal(self.image.stop_signal)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def kill(self) -> None:
        """Kills process 1 with SIGKILL."""
        assert self._process is not None
        self.signal("SIGKILL")
        self._process.wait(10)

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._published.close()
        self._remove_link()

    def ready_page(self) -> int:
        connection = HTTPConnection(self.address, 9644, timeout=30)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        finally:
            connection.close()

    def _create_volume(self, volume: Path, inside: str) -> None:
        """Creates a named volume. Like an engine, gives it the mode and owner of the directory in the image."""
        volume.mkdir(parents=True)
        made = (self.image.root / inside.lstrip("/")).stat()
        os.chown(volume, made.st_uid, made.st_gid)
        os.chmod(volume, made.st_mode & 0o7777)

    def _make_link(self) -> None:
        self._remove_link()
        run("ip", "netns", "add", self._network)
        run("ip", "link", "add", f"v{self._network}", "type", "veth", "peer", "name", "eth0", "netns", self._network)
        run("ip", "link", "set", f"v{self._network}", "master", BRIDGE, "up")
        inside = ["ip", "-n", self._network]
        run(*inside, "address", "add", f"{self.address}/{NETWORK_BITS}", "dev", "eth0")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "route", "add", "default", "via", GATEWAY)

    def _remove_link(self) -> None:
        for words in (["netns", "delete", self._network], ["link", "delete", f"v{self._network}"]):
            with contextlib.suppress(subprocess.CalledProcessError):
                run("ip", *words)

    def _in_root(self, root: Path, words: Sequence[str], environment: Mapping[str, str]) -> str:
        variables = {**self.image.environment, "HOSTNAME": self.hostname, **environment}
        user = self.user or f"{self.image.user}:0"
        chroot = ["chroot", f"--userspec={user}", "--groups=", str(root), "env", "-i"]
        pairs = [f"{name}={value}" for name, value in variables.items()]
        program = ["sh", "-c", 'cd /var/lib/kafka && exec "$@"', "sh", *words]
        return shlex.join([*chroot, *pairs, *program])


@contextlib.contextmanager
def published(address: str, port: int, *, at: int) -> Iterator[None]:
    """Publishes a port like `-p at:port`.

    Connections to the port `at` on the host's loopback interface reach the container from the gateway's address.
    """
    listening = socket.create_server(("127.0.0.1", at))

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                try:
                    inside = socket.create_connection((address, port), 10)
                except OSError:
                    client.close()
                    continue
                for ends in ((client, inside), (inside, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
