"""Draws conclusions from facts and gives advice to users whose broker or client does not work. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

OPEN_FILES_NEEDED = 4096  # each log in use and each connection needs an open file
FREE_BYTES_NEEDED = 1 << 30
CLOCK_MS = 5 * 60 * 1000
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"})


class Severity(Enum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A conclusion. `advice` describes what to do about it, or is None if nothing needs to be done."""

    level: Severity
    about: str
    says: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    open_files_soft: int
    open_files_hard: int
    has_uvloop: bool


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """Facts about a data directory.

    is_used    whether a broker has the directory open
    refused    names of the logs that a broker rejected because they are damaged
    set_aside  names of unfinished files, and of the directories of deleted or replaced topics
    newest_ms  time of the last change to a file in the directory
    """

    path: str
    exists: bool
    is_writable: bool = False
    free_bytes: int = 0
    file_system: str = ""
    is_data_directory: bool = False
    is_used: bool = False
    was_stopped_cleanly: bool = False
    refused: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    newest_ms: int | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class ProbedAddress:
    """An address and whether it accepts connections. If it does not, `error` is the reason."""

    host: str
    port: int
    error: str | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Facts about a broker.

    bootstrap   the addresses that the user specified
    refusal     the reason that none of these addresses answered as a Kafka broker
    advertised  the addresses that the broker advertises to clients
    """

    bootstrap: tuple[ProbedAddress, ...]
    refusal: str | None = None
    advertised: tuple[ProbedAddress, ...] = ()


def diagnose_machine(facts: MachineFacts) -> Iterator[Diagnosis]:
    about = "open files"
    if facts.open_files_hard < OPEN_FILES_NEEDED:
        yield Diagnosis(
            Severity.WARNING,
            about,
            f"a process may open at most {facts.open_files_hard}, and each partition and each connection needs one",
            "raise the hard limit with LimitNOFILE= in the service, --ulimit nofile=65536 for docker, or limits.conf",
        )
    else:
        yield Diagnosis(
            Severity.OK,
            about,
            f"the broker may open up to {facts.open_files_hard}, and raises its limit to that when it starts",
        )
    if not facts.has_uvloop:
        yield Diagnosis(
            Severity.WARNING,
            "uvloop",
            "is not installed, so the broker uses up to 1.6 times as much CPU",
            "pip install uvloop",
        )


def diagnose_directory(facts: DirectoryFacts) -> Iterator[Diagnosis]:
    about = f"data directory {facts.path}"
    if not facts.exists:
        yield Diagnosis(Severity.OK, about, "does not exist yet; the broker creates it when it first starts")
        return
    if not facts.is_writable:
        yield Diagnosis(
            Severity.PROBLEM,
            about,
            "cannot be written to by this user",
            "start the broker as the owner of the directory, or chown the directory; in a container, make the user"
            " of the image the owner of the volume",
        )
    if facts.free_bytes < FREE_BYTES_NEEDED:
        yield Diagnosis(
            Severity.WARNING,
            about,
            f"{facts.free_bytes >> 20} MiB are free",
            "lower log.retention.bytes or log.retention.ms, or choose another disk with --data-dir",
        )
    if facts.file_system in MEMORY_FILE_SYSTEMS:
        yield Diagnosis(
            Severity.WARNING,
            about,
            f"is in memory ({facts.file_system}): a reboot empties it",
            "choose a disk with --data-dir",
        )
    elif facts.file_system in NETWORK_FILE_SYSTEMS:
        yield Diagnosis(
            Severity.WARNING,
            about,
            f"is on {facts.file_system}, where locks and fdatasync may not give the guarantees that the log relies on",
            "choose a local disk with --data-dir",
        )
    if facts.newest_ms is not None and facts.newest_ms > facts.now_ms + CLOCK_MS:
        yield Diagnosis(
            Severity.WARNING,
            about,
            f"has files from {(facts.newest_ms - facts.now_ms) // 60_000} minutes in the future, so a clock must"
            " have been set back",
            "correct the clock of this machine: retention and transaction timeouts depend on it",
        )
    yield from _state_of(facts, about)


def _state_of(facts: DirectoryFacts, about: str) -> Iterator[Diagnosis]:
    if facts.is_used:
        yield Diagnosis(Severity.OK, about, "is in use by a broker")
    elif not facts.is_data_directory:
        yield Diagnosis(Severity.OK, about, "is not used by a broker yet")
    elif facts.was_stopped_cleanly:
        yield Diagnosis(Severity.OK, about, "was closed cleanly by the last broker")
    else:
        yield Diagnosis(
            Severity.WARNING,
            about,
            "was not closed cleanly: the broker crashed, or was killed",
            "nothing to do: the next start recovers the logs, and no acknowledged record is lost",
        )
    if facts.refused:
        yield Diagnosis(
            Severity.PROBLEM,
            about,
            f"has damaged logs, with which the broker refused to start: {', '.join(facts.refused)}",
            "`odradek inspect check` shows the damage; the file .odradek_refused in each log states why the broker"
            " refused it",
        )
    if facts.set_aside:
        yield Diagnosis(
            Severity.OK,
            about,
            f"has {len(facts.set_aside)} leftovers of deleted topics or unfinished work, such as {facts.set_aside[0]}",
            "nothing to do: the broker will remove them",
        )


def diagnose_broker(facts: BrokerFacts) -> Iterator[Diagnosis]:
    for address in facts.bootstrap:
        if address.error is None:
            yield Diagnosis(Severity.OK, f"port {address}", "accepts connections")
        else:
            yield Diagnosis(
                Severity.PROBLEM,
                f"port {address}",
                f"cannot be reached: {address.error}",
                "start the broker there, or give another address with -b; if the broker runs in a container,"
                " publish the port",
            )
    if all(address.error is not None for address in facts.bootstrap):
        return
    if facts.refusal is not None:
        yield Diagnosis(
            Severity.PROBLEM,
            "Kafka protocol",
            facts.refusal,
            "check that this is the listener for clients: a listener with TLS or SASL, a controller's listener and"
            " the HTTP port answer differently",
        )
        return
    given = {address.host for address in facts.bootstrap}
    for address in facts.advertised:
        yield _diagnosis(address, are_all_local=all(is_local(host) for host in given))


def _diagnosis(address: ProbedAddress, *, are_all_local: bool) -> Diagnosis:
    about = f"advertised address {address}"
    if address.error is None and (are_all_local or not is_local(address.host)):
        return Diagnosis(Severity.OK, about, "is where clients are sent, and is reachable from this machine")
    if is_local(address.host) and not are_all_local:
        says = "is a local address, so clients on other machines are sent to themselves"
    else:
        says = f"is where clients are sent, but is not reachable from this machine: {address.error}"
    return Diagnosis(
        Severity.PROBLEM,
        about,
        says,
        "set advertised.listeners to an address that this machine can reach, or set odradek.advertise=arrival:"
        " each client is then given the address through which it connected",
    )


def is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
