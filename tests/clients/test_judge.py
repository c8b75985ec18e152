"""Tests `odradek judge` with real clients, and its errors for invalid arguments."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.recording import pack_block, pack_entries, pack_head
from odradek.tools.commands import tree
from tests.support.judged_cases import batch, produce
from tests.support.traces import Trace

PRODUCE = """
import os
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"], "transactional.id": "t"})
producer.init_transactions(60)
for number in range(3):
    producer.begin_transaction()
    producer.produce("t", str(number))
    producer.commit_transaction(60)
"""


@pytest.fixture
def guilty(tmp_path: Path) -> Path:
    """Writes the recording of a client that breaks two rules: it sends acks=1 with a producer id, and Metadata before
    ApiVersions."""
    trace = Trace()
    peer = trace.connect()
    peer.ask(MetadataRequest(topics=[]), 12, MetadataResponse())
    produce(peer, batch(0, producer=(7, 0)), acks=1)
    path = tmp_path / "recording"
    path.write_bytes(pack_head(0) + pack_block(pack_entries(trace.entries)))
    return path


def test_a_client_that_keeps_the_rules_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, suite = tmp_path / "page.html", tmp_path / "suite.xml"
    files = ["--html", str(page), "--junit", str(suite)]
    assert tree.run(["judge", "--odd", "0", "--strict", *files, "--", sys.executable, "-c", PRODUCE]) == 0
    said, err = capsys.readouterr()
    assert "--odd" not in err
    assert "rdkafka" in said
    assert "kept     TXN.1 " in said
    assert "BROKEN" not in said
    cases = ElementTree.parse(suite).findall(".//testcase")
    assert len({case.get("name") for case in cases}) == len(cases) > 60
    assert "TXN.1" in page.read_text(encoding="utf-8")


def test_the_broker_gives_rare_answers_by_a_seed_that_the_command_prints(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--", sys.executable, "-c", PRODUCE]
    assert tree.run(["judge", *words]) == 0
    seed = re.search(r"--odd (\d+) repeats them", capfd.readouterr().err)
    assert seed is not None
    ask = (
        "import os; from odradek.testing.sync import Odradek; host, port = os.environ['ODRADEK_CONTROL'].split(':');"
        "print('seed', Odradek(host, int(port)).default.odd()['seed'])"
    )
    tree.run(["judge", "--odd", seed[1], "--", sys.executable, "-c", ask])
    assert f"seed {seed[1]}\n" in capfd.readouterr().out


def test_the_last_rare_answers_are_printed_when_the_command_fails(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--", sys.executable, "-c", f"{PRODUCE}\nraise SystemExit(7)"]
    assert tree.run(["judge", "--odd", "5", *words]) == 2
    err = capfd.readouterr().err
    assert re.search(r"  [a-z ]+: to \w+ of client '\w+' in exchange \d+\n", err)
    assert "Repeat the command with --odd 5 to get the same answers, or with --odd 0 to get none" in err
    assert tree.run(["judge", "--odd", "0", *words]) == 2
    assert "rare" not in capfd.readouterr().err


# This client's requests do not depend on time, so their order is the same in every run.
ONE_BY_ONE = """
import os
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.support.wire import ClosedByBroker, Wire

wire = Wire(os.environ["ODRADEK_BOOTSTRAP"])
for _ in range(60):
    try:
        print("answer", wire.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4))
    except ClosedByBroker:
        print("answer none: the broker closed the connection")
        wire = Wire(os.environ["ODRADEK_BOOTSTRAP"])
"""


def test_the_printed_seed_repeats_the_answers_of_the_run_that_printed_it(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--", sys.executable, "-c", ONE_BY_ONE]
    tree.run(["judge", *words])
    first = capfd.readouterr()
    printed = re.search(r"--odd (\d+) repeats them", first.err)
    assert printed is not None
    outputs = [first.out]
    for seed in (printed[1], str(int(printed[1]) + 1), "0"):
        tree.run(["judge", "--odd", seed, *words])
        outputs.append(capfd.readouterr().out)
    answers = [[line for line in out.splitlines() if line.startswith("answer ")] for out in outputs]
    assert answers[0] == answers[1] != answers[2]
    assert answers[0] != answers[3]
    assert len(answers[0]) == 60


def test_rare_answers_are_refused_for_recordings_suites_and_attached_brokers(guilty: Path) -> None:
    assert tree.run(["judge", "--odd", "7", str(guilty)]) == 3
    assert tree.run(["judge", "--odd", "7", "--suite", "--", "driver"]) == 3
    assert tree.run(["judge", "--odd", "7", "--attach", "localhost:1"]) == 3


def test_a_broken_rule_is_shown_with_its_proof(guilty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tree.run(["judge", str(guilty)]) == 1
    said = capsys.readouterr().out
    assert "BROKEN   PRD.4" in said
    assert "acks is 1" in said
    assert tree.run(["judge", "--json", str(guilty)]) == 1
    (software,) = json.loads(capsys.readouterr().out)["software"]
    (verdict,) = [each for each in software["verdicts"] if each["rule"] == "PRD.4"]
    assert (verdict["verdict"], verdict["proof"][-1]["request"]["acks"]) == ("broken", 1)


SENDS_UNTIL_IT_ENDS = """
import os, sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["ODRADEK_BOOTSTRAP"], "enable.idempotence": True})
producer.produce("t", "one")
producer.flush(10)
print("sent", flush=True)
while True:
    time.sleep(1)
"""
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.posix  # Windows does not kill the processes that the program has started.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", [SENDS_UNTIL_IT_ENDS, IGNORES_SIGTERM + SENDS_UNTIL_IT_ENDS], ids=["", "deaf"])
def test_a_signal_ends_the_command_and_its_requests_are_judged(
    number: signal.Signals, program: str, tmp_path: Path
) -> None:
    """The program runs in a shell, as with `make test`. None of the command's processes survives."""
    suite, page, report = tmp_path / "suite.xml", tmp_path / "page.html", tmp_path / "told.json"
    files = ["--junit", str(suite), "--html", str(page), "--json-file", str(report)]
    shell = ["sh", "-c", f"{shlex.join([sys.executable, '-c', program])}; true"]
    words = [sys.executable, "-m", "odradek", "judge", "--odd", "0", *files, "--", *shell]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as judge:
        assert judge.stdout is not None
        assert judge.stdout.readline() == "sent\n"
        judge.send_signal(number)
        said = judge.stdout.read()  # The stream ends once no process has it open.
        assert judge.wait(60) == 2
    assert "kept     IDM.1 " in said
    assert f"the run was ended by {number.name}" in suite.read_text(encoding="utf-8")
    assert "IDM.1" in page.read_text(encoding="utf-8")
    assert json.loads(report.read_text(encoding="utf-8"))["software"]


def test_json_is_alone_on_its_stream(capfd: pytest.CaptureFixture[str]) -> None:
    program = f"print('of the command'){PRODUCE}"
    assert tree.run(["judge", "--odd", "0", "--json", "--", sys.executable, "-c", program]) == 0
    said, err = capfd.readouterr()
    assert json.loads(said)["software"]
    assert "of the command" in err


def test_a_report_shows_the_duration_and_the_failure_of_the_command(tmp_path: Path) -> None:
    suite = tmp_path / "suite.xml"
    program = f"{PRODUCE}\nraise SystemExit(7)"
    words = ["judge", "--odd", "0", "--junit", str(suite), "--", sys.executable, "-c", program]
    assert tree.run(words) == 2
    report = ElementTree.parse(suite).getroot()
    of_software, of_command = report.findall("testsuite")
    assert [report.get("errors"), of_software.get("errors"), of_command.get("errors")] == ["1", "0", "1"]
    assert int(report.get("tests", "")) == len(report.findall(".//testcase"))
    assert 0 < float(of_software.get("time", "")) < float(of_command.get("time", ""))
    assert all(case.get("time") for case in report.findall(".//testcase"))
    error = of_command.find("testcase/error")
    assert error is not None
    assert error.get("message") == "the command ended with status 7"


def test_a_report_that_cannot_be_written_is_refused_before_the_command_runs(
    guilty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    missing = tmp_path / "no such folder" / "verdict.xml"
    assert tree.run(["judge", "--junit", str(missing), "--", "touch", str(ran)]) == 3
    assert not ran.exists()
    assert str(missing) in capsys.readouterr().err
    assert tree.run(["judge", "--only", "PRD.1", "--html", str(tmp_path), str(guilty)]) == 3
    assert "cannot be written" in capsys.readouterr().err


def test_only_broken_must_rules_fail_the_command_unless_it_is_strict(guilty: Path) -> None:
    assert tree.run(["judge", "--only", "VER.1", str(guilty)]) == 0
    assert tree.run(["judge", "--only", "VER.1", "--strict", str(guilty)]) == 1


def test_a_known_break_passes_until_its_day(guilty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tree.run(["judge", "--ignore", "PRD.4=issue 1 until 2999-01-01", str(guilty)]) == 0
    assert "ignored: issue 1" in capsys.readouterr().out
    assert tree.run(["judge", "--ignore", "PRD.4=issue 1 until 2020-01-01", str(guilty)]) == 1
    assert "expired on 2020-01-01" in capsys.readouterr().err


def test_known_breaks_are_kept_in_a_file(guilty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = tmp_path / "known-breaks"
    known.write_text("# of our client\n\nPRD.4=issue 1 until 2999-01-01\n")
    assert tree.run(["judge", "--ignore-file", str(known), str(guilty)]) == 0
    with known.open("a") as file:
        file.write("PRD.1=issue 2 until 2999-01-01\n")
    assert tree.run(["judge", "--ignore-file", str(known), str(guilty)]) == 1
    assert "PRD.1 is no longer broken" in capsys.readouterr().err
    for wrong in ("PRD.4\n", "NO.1=x until 2999-01-01\n"):
        known.write_text(wrong)
        assert tree.run(["judge", "--ignore-file", str(known), str(guilty)]) == 3
    assert tree.run(["judge", "--ignore-file", str(tmp_path / "none"), str(guilty)]) == 3


def test_a_fixed_break_must_be_removed_from_the_known_breaks(guilty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ["--ignore", "PRD.4=issue 1 until 2999-01-01", "--ignore", "PRD.1=issue 2 until 2999-01-01"]
    assert tree.run(["judge", *known, str(guilty)]) == 1
    assert "PRD.1 is no longer broken" in capsys.readouterr().err


def test_failed_commands_and_commands_without_requests_have_their_own_statuses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tree.run(["judge", "--", sys.executable, "-c", "raise SystemExit(7)"]) == 2
    assert "status 7" in capsys.readouterr().err
    assert tree.run(["judge", "--", sys.executable, "-c", ""]) == 3
    assert tree.run(["judge", "--", "/no/such/command"]) == 3
    assert tree.run(["judge", "--only", "NO.1", "x"]) == 3
    assert tree.run(["judge"]) == 3
    assert tree.run(["judge", "--nothing"]) == 3


def test_rules_that_nobody_exercised_are_not_blamed_on_missing_clients(
    guilty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tree.run(["judge", "--only", "848.", str(guilty)]) == 3
    assert "the clients sent nothing to which these rules apply" in capsys.readouterr().err


def test_all_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert tree.run(["judge", "--dryrun"]) == 0
    assert "PRD.4   M" in capsys.readouterr().out


def test_a_driver_is_played_scenarios_at(capsys: pytest.CaptureFixture[str]) -> None:
    driver = Path(__file__).parents[2] / "examples" / "judge_drivers" / "librdkafka.py"
    assert tree.run(["judge", "--suite", "--only", "TXN.11", "--", sys.executable, str(driver)]) == 0
    said = capsys.readouterr().out
    assert "rdkafka" in said
    assert "kept     TXN.11" in said


@pytest.mark.slow
def test_an_error_that_the_application_sees_breaks_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    driver = Path(__file__).parents[2] / "examples" / "judge_drivers" / "librdkafka.py"
    spoil = Path(__file__).parents[1] / "client_lab" / "spoiled_driver.py"
    command = [sys.executable, str(spoil), "commit raises", sys.executable, str(driver)]
    assert tree.run(["judge", "--suite", "--only", "TXN.11", "--", *command]) == 1
    assert "`commit` raised on purpose" in capsys.readouterr().out
