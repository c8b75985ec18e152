"""Tests the findings of `odradek doctor` and the conclusions that it draws from them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.tools.doctor.facts import address_of, directory_facts, file_system_of, is_locked
from odradek.tools.doctor.findings import (
    BrokerFacts,
    Diagnosis,
    DirectoryFacts,
    MachineFacts,
    ProbedAddress,
    Severity,
    diagnose_broker,
    diagnose_directory,
    diagnose_machine,
)

SOUND = DirectoryFacts(
    "/data",
    exists=True,
    is_writable=True,
    free_bytes=1 << 40,
    file_system="ext4",
    is_data_directory=True,
    was_stopped_cleanly=True,
    newest_ms=1_000,
    now_ms=2_000,
)


def complaints(findings: object) -> list[tuple[Severity, str]]:
    assert not isinstance(findings, str)
    return [(each.level, each.says) for each in findings if each.level is not Severity.OK]  # type: ignore[attr-defined]


def one(findings: object) -> Diagnosis:
    (found,) = [each for each in findings if each.level is not Severity.OK]  # type: ignore[attr-defined]
    assert isinstance(found, Diagnosis)
    return found


def test_the_doctor_reports_nothing_for_a_healthy_machine_and_directory() -> None:
    assert complaints(diagnose_machine(MachineFacts(1024, 65536, has_uvloop=True))) == []
    assert complaints(diagnose_directory(SOUND)) == []
    assert complaints(diagnose_directory(DirectoryFacts("/new", exists=False))) == []


@pytest.mark.parametrize(
    ("facts", "level", "says", "advice"),
    [
        (replace(SOUND, is_writable=False), Severity.PROBLEM, "cannot be written to", "chown"),
        (replace(SOUND, free_bytes=5 << 20), Severity.WARNING, "5 MiB are free", "retention"),
        (replace(SOUND, file_system="tmpfs"), Severity.WARNING, "a reboot empties it", "--data-dir"),
        (replace(SOUND, file_system="nfs4"), Severity.WARNING, "fdatasync", "local disk"),
        (replace(SOUND, newest_ms=3_600_000), Severity.WARNING, "59 minutes in the future", "clock"),
        (replace(SOUND, was_stopped_cleanly=False), Severity.WARNING, "crash", "nothing to do"),
        (replace(SOUND, refused=("orders-0",)), Severity.PROBLEM, "orders-0", "inspect check"),
    ],
)
def test_each_trouble_of_a_directory_has_its_advice(
    facts: DirectoryFacts, level: Severity, says: str, advice: str
) -> None:
    found = one(diagnose_directory(facts))
    assert found.level is level
    assert says in found.says
    assert advice in (found.advice or "")


def test_few_open_files_and_a_missing_uvloop_are_warnings() -> None:
    findings = list(diagnose_machine(MachineFacts(256, 1024, has_uvloop=False)))
    assert [each.level for each in findings] == [Severity.WARNING, Severity.WARNING]


HERE, AWAY = ProbedAddress("localhost", 9092), ProbedAddress("broker", 29092)
CLOSED = ProbedAddress("localhost", 9092, "Connection refused")


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (BrokerFacts((CLOSED,)), "cannot be reached: Connection refused"),
        (BrokerFacts((HERE,), refusal="the broker hung up"), "the broker hung up"),
        (
            BrokerFacts((HERE,), advertised=(ProbedAddress("broker", 29092, "Name or service not known"),)),
            "Name or service",
        ),
        (BrokerFacts((AWAY,), advertised=(HERE,)), "clients on other machines are sent to themselves"),
    ],
)
def test_each_trouble_with_a_broker_is_a_problem(facts: BrokerFacts, says: str) -> None:
    found = one(diagnose_broker(facts))
    assert found.level is Severity.PROBLEM
    assert says in found.says
    assert found.advice is not None


@pytest.mark.parametrize("facts", [BrokerFacts((HERE,), advertised=(HERE,)), BrokerFacts((AWAY,), advertised=(AWAY,))])
def test_an_address_that_can_be_reached_is_fine(facts: BrokerFacts) -> None:
    assert complaints(diagnose_broker(facts)) == []


def test_facts_of_a_directory_are_read_from_its_files(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    (tmp_path / ".lock").touch()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / ".odradek_refused").touch()
    (tmp_path / "gone-0.0123-delete").mkdir()
    facts = directory_facts(tmp_path)
    assert (facts.is_data_directory, facts.was_stopped_cleanly, facts.is_used) == (True, False, False)
    assert (facts.refused, facts.set_aside) == (("orders-0",), ("gone-0.0123-delete",))


@pytest.mark.linux
def test_the_type_of_a_file_system_is_known(tmp_path: Path) -> None:
    assert file_system_of(tmp_path) != ""


def test_a_lock_that_somebody_holds_is_seen_and_not_taken(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / ".lock"
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    assert not is_locked(path)
    fcntl.flock(file, fcntl.LOCK_EX)
    assert is_locked(path)
    os.close(file)
    assert not is_locked(path)


@pytest.mark.parametrize(("text", "address"), [("broker:9092", ("broker", 9092)), ("[::1]:9092", ("::1", 9092))])
def test_addresses_are_read(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address
    with pytest.raises(ValueError, match="HOST:PORT"):
        address_of("broker")
