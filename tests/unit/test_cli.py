"""Tests the command line: the arguments that `serve` accepts, its messages for invalid arguments, and the process that
it starts."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from odradek.cli import main
from odradek.protocol.variant import PURE, variant
from odradek.serve import (
    EPHEMERAL_PREFIX,
    ServeOptions,
    UsageError,
    default_data_directory,
    make_ephemeral_directory,
    parse_options,
    remove_directory,
)
from tests.support.oracle import REPOSITORY
from tests.support.reserved_port import ReservedPort


def odradek(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "odradek", *words],
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_options_may_be_given_with_a_space_or_an_equals_sign() -> None:
    words = [
        "--port",
        "0",
        "--data-dir=d",
        "--override",
        "a=b",
        "--override=c=d=e",
        "--ready-file",
        "r",
        "--config=f",
        "--ephemeral",
        "--log-format=json",
    ]
    assert parse_options(words) == ServeOptions(
        config=Path("f"),
        overrides=("a=b", "c=d=e"),
        data_dir=Path("d"),
        port=0,
        ready_file=Path("r"),
        is_ephemeral=True,
        log_format="json",
    )


def test_options_that_stand_for_a_setting_win_over_overrides() -> None:
    options = parse_options(["--override", "log.dirs=/one", "--data-dir", "/two", "--port", "9", "--http-port", "8"])
    assert options.settings() == {"log.dirs": "/two", "odradek.port": "9", "odradek.http.port": "8"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--prot", "1"], "--prot is not an option of serve. Did you mean --port?"),
        (["stray"], "stray is not an option of serve"),
        (["--port"], "--port needs a value"),
        (["--port", "kafka"], "--port kafka: must be a number"),
        (["--http-port", "page"], "--http-port page: must be a number"),
        (["--http-port", "-2"], "--http-port -2: must be a number from 0 (any free port) to 65535, or -1"),
        (["--port", "-1"], "--port -1: must be a number"),
        (["--port", "65536"], "--port 65536: must be a number"),
        (["--override", "retention"], "--override retention: write the name and the value of a setting"),
        (["--log-format", "xml"], "--log-format xml: must be text or json"),
        (["--override", "=5"], "--override =5: write the name and the value of a setting"),
    ],
)
def test_serve_names_the_option_that_it_does_not_understand(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        parse_options(words).settings()


def test_a_word_too_many_ends_with_the_usage_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--verbose"]) == 2
    said = capsys.readouterr().err
    assert "--verbose is not an option" in said
    assert "usage: odradek serve [--config FILE]" in said


def test_help_names_every_option_that_serve_takes() -> None:
    done = odradek("serve", "--help", environment={"COLUMNS": "100", "NO_COLOR": "1"})
    assert done.returncode == 0
    for option in ("--config", "--override", "--data-dir", "--port", "--ready-file", "--log-format", "--ephemeral"):
        assert option in done.stdout
        with pytest.raises(UsageError, match="needs a value" if option != "--ephemeral" else "is not an option"):
            parse_options([option] if option != "--ephemeral" else [option, "--ephemeral=yes"])


def test_version_prints_the_variant_and_an_unknown_command_is_refused() -> None:
    version = odradek("version").stdout
    assert version.startswith("odradek 0.")
    assert ("(pure Python" in version) is (variant() == PURE)
    unknown = odradek("server")
    assert unknown.returncode == 2
    assert "server" in unknown.stderr


def test_a_bad_setting_is_refused_with_its_name_its_value_and_what_is_allowed(tmp_path: Path) -> None:
    done = odradek("serve", "--data-dir", str(tmp_path / "data"), "--override", "num.partitions=none")
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert "none" in done.stderr
    assert "allowed" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_missing_configuration_file_is_reported(tmp_path: Path) -> None:
    done = odradek("serve", "--config", str(tmp_path / "server.properties"))
    assert done.returncode == 1
    assert "No such file" in done.stderr
    assert "server.properties" in done.stderr
    assert "Traceback" not in done.stderr


def test_ephemeral_and_a_data_directory_exclude_each_other(tmp_path: Path) -> None:
    done = odradek("serve", "--ephemeral", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "--ephemeral creates a temporary directory" in done.stderr


def test_the_default_data_directory_is_in_the_users_data_home() -> None:
    assert default_data_directory({"XDG_DATA_HOME": "/xdg"}) == Path("/xdg/odradek")
    assert default_data_directory({}) == Path.home() / ".local/share/odradek"


def test_ephemeral_directories_of_processes_that_were_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pid_that_cannot_be = 2**22 + 1
    left = tmp_path / f"{EPHEMERAL_PREFIX}{pid_that_cannot_be}-abc"
    in_use = tmp_path / f"{EPHEMERAL_PREFIX}{os.getppid()}-abc"
    for directory in (left, in_use):
        (directory / "t-0").mkdir(parents=True)
    made = make_ephemeral_directory()
    assert made.is_dir()
    assert in_use.is_dir()
    assert not left.exists()
    remove_directory(made)
    assert not made.exists()


class Serving:
    """A process that runs `odradek serve`, started as a user would start it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.ready_file = folder / "ready.json"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "serve", "--ready-file", str(self.ready_file), *words],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        # The line arrives when the broker accepts connections. It is empty if the process has exited.
        self.line = self.process.stdout.readline()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)

    def errors(self) -> str:
        self.process.wait(30)
        assert self.process.stderr is not None
        return self.process.stderr.read()


def test_one_line_says_where_clients_connect_and_the_ready_file_says_the_same(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    broker = Serving(tmp_path, "--port", "0", "--data-dir", str(data_dir))
    ready = json.loads(broker.ready_file.read_text())
    assert ready.keys() == {
        "host",
        "port",
        "listeners",
        "http_port",
        "node_id",
        "cluster_id",
        "data_dir",
        "pid",
        "start_ms",
        "variant",
    }
    assert ready["listeners"] == {"PLAINTEXT": f"{ready['host']}:{ready['port']}"}
    assert ready["pid"] == broker.process.pid
    assert ready["node_id"] == 1
    assert ready["data_dir"] == str(data_dir)
    assert f"{ready['host']}:{ready['port']}" in broker.line
    assert str(data_dir) in broker.line
    assert f"{ready['start_ms']} ms" in broker.line
    assert ready["variant"] == variant()
    assert f", {'pure Python' if variant() == PURE else 'compiled'}" in broker.line
    assert f"; the page is on http://127.0.0.1:{ready['http_port']}/ (data in" in broker.line
    assert f"cluster.id={ready['cluster_id']}" in (data_dir / "meta.properties").read_text().replace("\\", "")
    assert broker.end() == 0
    assert (data_dir / ".kafka_cleanshutdown").exists()
    assert not broker.ready_file.exists()


def test_the_line_says_what_the_http_port_serves(tmp_path: Path) -> None:
    words = ("--port", "0", "--ephemeral")
    without = Serving(tmp_path, *words, "--http-port", "-1")
    assert "the page" not in without.line
    assert without.end() == 0
    reachable = Serving(tmp_path, *words, "--override", "odradek.http.host=")
    port = json.loads(reachable.ready_file.read_text())["http_port"]
    assert f"; health checks are on http://localhost:{port}/readyz" in reachable.line
    assert reachable.end() == 0


def test_the_page_takes_a_free_port_if_the_default_one_is_taken(tmp_path: Path) -> None:
    kafka = ReservedPort()
    with ExitStack() as stack:
        with suppress(OSError):  # the test also works if another process already uses the port
            stack.enter_context(socket.create_server(("127.0.0.1", 9644)))
        broker = Serving(tmp_path, "--port", str(kafka.number), "--ephemeral")
        port = json.loads(broker.ready_file.read_text())["http_port"]
        assert f"; the page is on http://127.0.0.1:{port}/ (port 9644 is taken)" in broker.line
        assert broker.end() == 0


def test_ctrl_c_stops_the_broker_cleanly(tmp_path: Path) -> None:
    broker = Serving(tmp_path, "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert broker.end(signal.SIGINT) == 0
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()


def test_an_ephemeral_broker_takes_its_data_with_it(tmp_path: Path) -> None:
    broker = Serving(tmp_path, "--port", "0", "--ephemeral")
    data_dir = Path(json.loads(broker.ready_file.read_text())["data_dir"])
    assert (data_dir / "meta.properties").exists()
    assert broker.end() == 0
    assert not data_dir.exists()


def test_a_second_broker_on_the_same_directory_is_refused_and_the_first_serves_on(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    first = Serving(tmp_path, "--port", "0", "--data-dir", data_dir)
    (tmp_path / "second").mkdir()
    second = Serving(tmp_path / "second", "--port", "0", "--data-dir", data_dir)
    said = second.errors()
    assert second.process.returncode == 1
    assert data_dir in said
    assert "another" in said
    assert "Traceback" not in said
    assert first.process.poll() is None
    assert first.end() == 0


def test_a_directory_of_a_later_release_is_refused_in_one_line_that_names_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    lines = ("node.id=1", "version=1", "cluster.id=c", "odradek.version=999.2.1", "odradek.readable.since=999.2.0")
    (data / "meta.properties").write_text("".join(f"{line}\n" for line in lines))
    refused = Serving(tmp_path, "--port", "0", "--data-dir", str(data))
    said = refused.errors()
    assert refused.process.returncode == 1
    assert [each for each in said.splitlines() if "uvloop is not installed" not in each] == [said.splitlines()[-1]]
    assert f"{data} can be read by Odradek 999.2.0 and later" in said


def test_a_port_that_is_taken_is_named_with_what_to_do(tmp_path: Path) -> None:
    first = Serving(tmp_path, "--port", "0", "--data-dir", str(tmp_path / "data"))
    port = json.loads(first.ready_file.read_text())["port"]
    (tmp_path / "second").mkdir()
    words = ["--port", str(port), "--data-dir", str(tmp_path / "other")]
    second = Serving(tmp_path / "second", *words)
    said = second.errors()
    assert second.process.returncode == 1
    assert str(port) in said
    assert "--port" in said
    assert "Traceback" not in said
    assert first.end() == 0


def test_the_broker_reports_a_missing_uvloop_and_serves(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "sys.modules['uvloop'] = None\n"
        "from odradek.cli import main\n"
        f"sys.exit(main(['serve', '--port', '0', '--data-dir', {str(tmp_path / 'data')!r},"
        f" '--ready-file', {str(tmp_path / 'ready.json')!r}]))\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "accepts Kafka clients" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert "uvloop is not installed" in process.stderr.read()
