"""Controls Odradek from tests, without asyncio or third-party libraries.

    with Odradek.start() as odradek, odradek.cluster() as kafka:
        kafka.fault({"match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 3})
        my_client(kafka.bootstrap)

Each method makes one of the calls in `odradek/control_calls/table.py`, and returns when the broker has responded. If
the broker rejects the call, the method raises `Refused` with the broker's message.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, TypeAlias

from odradek.control_calls import table
from odradek.control_calls.call import ControlCall
from odradek.control_calls.table import BASE
from odradek.system.processes import GROUP_FLAGS, GROUP_OF_ITS_OWN

Json: TypeAlias = Any
START_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.005


class Refused(Exception):
    """The broker rejected a call.

    status   the HTTP status
    problem  the problem document; if access is denied, older brokers send a document with only the field `error`
    detail   the broker's message
    """

    def __init__(self, status: int, problem: Mapping[str, Json]) -> None:
        self.detail = str(problem.get("detail", problem.get("error", problem)))
        super().__init__(f"{status}: {self.detail}")
        self.status = status
        self.problem = problem


class Unmet(Exception):
    """A condition did not become true in time. `facts` contains the state at the timeout."""

    def __init__(self, condition: Mapping[str, Json], facts: Mapping[str, Json]) -> None:
        super().__init__(f"the condition {dict(condition)} did not become true in time; the state is {dict(facts)}")
        self.facts = facts


class Unused(Exception):
    """Fault rules had no effect, so the test did not produce the situation for which it was written.

    rules   the names of the rules
    unmade  the reason for each rule that matched requests but could not edit their responses, keyed by name
    """

    def __init__(self, rules: Sequence[str], unmade: Mapping[str, str] | None = None) -> None:
        self.rules = rules
        self.unmade = unmade or {}
        unmatched = [each for each in rules if each not in self.unmade]
        problems = [f"no request matched {', '.join(unmatched)}"] if unmatched else []
        problems += [f"no answer could be edited by {name}: {why}" for name, why in self.unmade.items()]
        super().__init__("; ".join(problems) + '; if a rule may remain unused, write "unused": "ok" into it')


class Odradek:
    """An Odradek process with its control interface. `host` and `port` are the address of the process's HTTP port.

    Use `start` to run a new process, or the constructor to connect to a running one. When a `with` statement exits, it
    stops a process created by `start`.
    """

    def __init__(self, host: str, port: int, *, token: str | None = None, process: Process | None = None) -> None:
        self.host = host
        self.port = port
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._process = process

    @classmethod
    def start(cls, **settings: str) -> Odradek:
        """Starts `odradek serve --control` on free ports, with a temporary data directory that is removed when the
        process exits. `settings` are broker settings. Raises RuntimeError if the process does not start."""
        process = Process(settings)
        return cls("127.0.0.1", process.ready["http_port"], process=process)

    def __enter__(self) -> Odradek:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the process if `start` created it."""
        if self._process is not None:
            self._process.stop()

    def call(
        self, method: str, path: str, body: Json = None, *, also: frozenset[int] = frozenset()
    ) -> tuple[int, Json]:
        """Sends a request to a path below /control/v1. Returns the status and the decoded response. Raises Refused for
        an error status that is not in `also`. Raises OSError if the connection fails."""
        connection = HTTPConnection(self.host, self.port, timeout=610)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, BASE + path, text, {"Content-Type": "application/json", **self._headers})
            response = connection.getresponse()
            answer = json.loads(response.read() or b"{}")
        finally:
            connection.close()
        if response.status >= 400 and response.status not in also:
            raise Refused(response.status, answer)
        return response.status, answer

    def _ask(self, call: ControlCall, /, **values: Json) -> Json:
        """Makes a call to the control interface with `values` as its fields. Returns the decoded response."""
        return self.call(*call.request(values))[1]

    def stream(self, path: str) -> HTTPResponse:
        """Sends a GET request to a path below /control/v1. Returns the response once its headers have arrived, so that
        the caller can read the body as a stream. Raises Refused or OSError."""
        connection = HTTPConnection(self.host, self.port)
        connection.request("GET", BASE + path, headers={**self._headers, "Connection": "close"})
        response = connection.getresponse()
        if response.status >= 400:
            with response:
                raise Refused(response.status, json.loads(response.read() or b"{}"))
        return response

    @property
    def default(self) -> Cluster:
        """The cluster that exists when the process starts."""
        return Cluster(self, "default", self._ask(table.SHOW))

    def cluster(
        self,
        *,
        settings: Mapping[str, Json] | None = None,
        fork: Cluster | None = None,
        ttl_s: int | None = None,
        nodes: int | Sequence[int] | None = None,
        topics: Mapping[str, int] | None = None,
        preset: str | tuple[str, Mapping[str, Json]] | None = None,
        emulate: str | None = None,
        listeners: Sequence[Mapping[str, Json]] | None = None,
        users: Mapping[str, str] | None = None,
        seed: str | Path | Mapping[str, Json] | None = None,
    ) -> Cluster:
        """Creates a fresh cluster, or a copy of the cluster `fork`.

        settings   broker settings
        ttl_s      time in seconds after which the cluster is deleted, or None for no limit
        nodes      the number of nodes, or a list of node ids
        topics     topics to create, with their numbers of partitions
        preset     the name of a rare state in which the cluster starts, or a pair of its name and its parameters
        emulate    the Kafka release that the cluster emulates, such as "4.0"
        listeners  ports, TLS and SASL settings of the listeners, such as `[{"protocol": "SASL_SSL", "port": 9093}]`;
                   see docs/testing.md
        users      passwords, keyed by user name
        seed       topics with records, groups with offsets, users and ACLs to create: an object, a JSON or YAML string,
                   or the path of a JSON or YAML file; see docs/seed.md
        """
        facts = self._ask(
            table.CREATE,
            settings=dict(settings or {}),
            fork=None if fork is None else fork.id,
            ttl_s=ttl_s,
            nodes=nodes if nodes is None or isinstance(nodes, int) else list(nodes),
            topics=dict(topics or {}),
            preset={"name": preset[0], "parameters": dict(preset[1])} if isinstance(preset, tuple) else preset,
            emulate=emulate,
            listeners=None if listeners is None else [dict(each) for each in listeners],
            users=None if users is None else dict(users),
            seed=_sent(seed),
        )
        return Cluster(self, facts["id"], facts)


def _sent(seed: str | Path | Mapping[str, Json] | None) -> Json:
    if isinstance(seed, Path):
        return seed.read_text(encoding="utf-8")
    return dict(seed) if isinstance(seed, Mapping) else seed


class Cluster:
    """A cluster running in an Odradek process. When a `with` statement exits, it deletes the cluster and raises
    `Unused` if a fault rule had no effect.

    bootstrap            the first listener's address
    listeners            the listeners, keyed by name, each with `name`, `protocol`, `bootstrap` and `mechanisms`
    ca_certificate       PEM certificate of the CA that clients must trust; None if no certificate was created for this
                         cluster
    client_certificates  each user's PEM key and certificate, if a listener requests client certificates
    schema_registry      URL of the schema registry; None if the cluster has none
    """

    def __init__(self, odradek: Odradek, name: str, told: Mapping[str, Json]) -> None:
        self.id = name
        self.bootstrap: str = told["bootstrap"]
        self.listeners: Mapping[str, Mapping[str, Json]] = {each["name"]: each for each in told["listeners"]}
        self.ca_certificate: str | None = told["ca_certificate"]
        self.client_certificates: Mapping[str, str] = told.get("client_certificates", {})
        self.schema_registry: str | None = told.get("schema_registry")
        self.clock = Clock(self)
        self._odradek = odradek
        self._recordings: list[Future[None]] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.check_faults()
        finally:
            self.delete()

    def call(
        self, method: str, path: str, body: Json = None, *, also: frozenset[int] = frozenset()
    ) -> tuple[int, Json]:
        """Like `Odradek.call`, but the path is relative to this cluster's path."""
        return self._odradek.call(method, f"/clusters/{self.id}{path}", body, also=also)

    def _ask(self, call: ControlCall, /, **values: Json) -> Json:
        """Makes a call to the control interface for this cluster, with `values` as its fields. Returns the decoded
        response."""
        return self.call(*call.request(values))[1]

    def fault(self, rule: Mapping[str, Json]) -> str:
        """Adds a fault rule and returns its name. docs/testing.md describes the fields of a rule."""
        name: str = self._ask(table.FAULT, rule=rule)[0]["name"]
        return name

    def faults(self) -> list[Mapping[str, Json]]:
        """Returns the fault rules, each with its counters `matched` and `hits`."""
        rules: list[Mapping[str, Json]] = self._ask(table.FAULTS)
        return rules

    def check_faults(self) -> None:
        """Raises Unused if any fault rule matched no requests or could not edit any of the responses. Rules with
        `"unused": "ok"` are not checked."""
        unused = [each for each in self.faults() if each.get("unused") != "ok" and not each["matched"] - each["unmade"]]
        if unused:
            unmade = {each["name"]: each["unmade_because"] for each in unused if each["unmade"]}
            raise Unused([each["name"] for each in unused], unmade)

    def clear_faults(self, name: str | None = None) -> None:
        """Removes the fault rule with this name, or all fault rules if `name` is None. Requests waiting at the holds of
        a removed rule continue."""
        self._ask(table.CLEAR, name=name)

    def holds(self) -> dict[str, int]:
        """Returns the number of requests waiting at each hold, keyed by the hold's name."""
        return {each["name"]: each["waiting"] for each in self._ask(table.HOLDS)}

    def release(self, hold: str) -> int:
        """Releases a hold, so that the requests waiting at it continue. Returns their number."""
        count: int = self._ask(table.RELEASE, name=hold)["released"]
        return count

    def wait(self, /, *, timeout_s: float = 10, **condition: Json) -> Mapping[str, Json]:
        """Waits until a condition is true, such as `wait(transaction="t", state="PrepareCommit")`. Returns the state
        that satisfies the condition. Raises Unmet if the condition is still false after `timeout_s`."""
        request = table.WAIT.request({**condition, "timeout_ms": int(timeout_s * 1000)})
        status, facts = self.call(*request, also=frozenset({408}))
        if status == 408:
            raise Unmet(condition, facts)
        answer: Mapping[str, Json] = facts
        return answer

    def requests(self, /, *, since: int = 0, **where: str) -> list[Mapping[str, Json]]:
        """Returns the most recent exchanges, decoded, oldest first. `since` selects the exchanges whose `number` is
        higher. `api` and `client_id` narrow down the result further."""
        found: list[Mapping[str, Json]] = self._ask(table.REQUESTS, since=since, **where)
        return found

    def partitions(self) -> list[Mapping[str, Json]]:
        """Returns the leader, leader epoch and offsets of each partition."""
        return self._rows(table.PARTITIONS)

    def transactions(self) -> list[Mapping[str, Json]]:
        """Returns all transactional ids, each with its `state`, its producer, and its transaction's `partitions`."""
        return self._rows(table.TRANSACTIONS)

    def groups(self) -> list[Mapping[str, Json]]:
        """Returns the groups of all types, each with its `state` and `members`."""
        return self._rows(table.GROUPS)

    def share_partitions(self) -> list[Mapping[str, Json]]:
        """Returns the share partitions with their `records` in flight. If no member is fetching from a partition, its
        records come from the stored state instead of from memory."""
        return self._rows(table.SHARE_PARTITIONS)

    def producers(self) -> list[Mapping[str, Json]]:
        """Returns the state of each producer id in each partition."""
        return self._rows(table.PRODUCERS)

    def sessions(self) -> list[Mapping[str, Json]]:
        """Returns the fetch sessions and share sessions, each with its `type`."""
        return self._rows(table.SESSIONS)

    def connections(self) -> list[Mapping[str, Json]]:
        """Returns the open connections, each with its `client_id`, its `software`, and the number of requests
        `in_flight`."""
        return self._rows(table.CONNECTIONS)

    def _rows(self, call: ControlCall) -> list[Mapping[str, Json]]:
        rows: list[Mapping[str, Json]] = []
        while True:
            found = self._ask(call, skip=len(rows))
            rows += found["rows"]
            if not found["more"]:
                return rows

    def preset(self, name: str, /, **parameters: Json) -> Mapping[str, Json]:
        """Puts the cluster into a rare state, such as `preset("open-transaction", topic="orders")`. Returns facts about
        that state."""
        facts: Mapping[str, Json] = self._ask(table.PRESET, **parameters, name=name)
        return facts

    def presets(self) -> list[Mapping[str, Json]]:
        """Returns the rare states that `preset` can create, with their parameters."""
        presets: list[Mapping[str, Json]] = self._ask(table.PRESETS)
        return presets

    def odd(self, seed: int | None = None, percent: Mapping[str, int] | None = None) -> Mapping[str, Json]:
        """Makes the broker send rare but valid responses. With the same `seed`, the same oddities occur.

        seed     0 stops the rare responses; None changes nothing
        percent  percentages that replace the default percentages of the named oddities

        Returns `seed` and `oddities`, each with its `name`, its `percent`, and `done`, the number of times that it has
        occurred.
        """
        if seed is None:
            answer: Mapping[str, Json] = self._ask(table.ODDITIES)
        else:
            answer = self._ask(table.ODD, seed=seed, percent=percent or {})
        return answer

    def checkpoint(self, name: str) -> None:
        """Saves the cluster's log and clock under this name, for `rewind`."""
        self._ask(table.CHECKPOINT, name=name)

    def rewind(self, name: str) -> None:
        """Restores the cluster's state at a checkpoint. All connections are closed, but the cluster keeps its ports."""
        self._ask(table.REWIND, name=name)

    def crash(self) -> None:
        """Kills the cluster's broker as `kill -9` would, without a clean shutdown. Call `restart` to start it again."""
        self._ask(table.CRASH)

    def restart(self, *, clean: bool = True) -> None:
        """Restarts the broker on the same ports. If `clean` is False, the broker is killed instead of being shut
        down."""
        self._ask(table.RESTART, clean=clean)

    def nodes(self) -> list[Mapping[str, Json]]:
        """Returns the `id`, `host`, `port` and `state` of each node."""
        nodes: list[Mapping[str, Json]] = self._ask(table.SHOW)["nodes"]
        return nodes

    def stop_node(self, node: int, *, clean: bool = True) -> None:
        """Stops a node. If `clean` is set, other nodes become the leaders of its partitions first. Otherwise the node
        is killed, and metadata lists it as alive for another 9 s by the cluster's clock."""
        self._ask(table.STOP_NODE, node=node, clean=clean)

    def start_node(self, node: int) -> None:
        """Starts a stopped node on its port."""
        self._ask(table.START_NODE, node=node)

    def cut_off(self, node: int, client_id: str) -> None:
        """Adds a fault rule that makes the node unreachable for clients with this client id. `clear_faults` removes the
        rule."""
        self._ask(table.CUT_OFF, node=node, client_id=client_id)

    def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Makes the node the leader of the partition and begins a new leader epoch."""
        self._ask(table.MOVE_LEADER, topic=topic, partition=partition, node=node)

    def put_in_rack(self, node: int, rack: str | None) -> None:
        """Puts the node into a rack, or into no rack if `rack` is None. Leaders refer consumers in this rack to the
        node (KIP-392)."""
        self._ask(table.RACK, node=node, rack=rack)

    def follow(self, topic: str, partition: int, node: int, end: int | None) -> None:
        """Limits a follower's log to offsets below `end`, or removes the limit if `end` is None."""
        self._ask(table.FOLLOWER, topic=topic, partition=partition, node=node, end=end)

    def truncate(self, topic: str, partition: int, offset: int, *, node: int | None = None) -> Mapping[str, Json]:
        """Simulates an unclean leader election. Batches that do not lie entirely below `offset` are lost, and a new
        leader epoch begins. Returns the partition's offsets and its `leader_epoch`.

        node  the new leader; None keeps the current one
        """
        facts: Mapping[str, Json] = self._ask(
            table.TRUNCATE, topic=topic, partition=partition, offset=offset, node=node
        )
        return facts

    def move_coordinator(self, kind: str, key: str, node: int) -> None:
        """Makes a node the coordinator of a key. The node then loads the key's state from the log.

        kind  `group`, `transaction` or `share`
        key   the id of the group, the transactional id, or `GROUP:TOPIC-ID:PARTITION`
        """
        self._ask(table.MOVE_COORDINATOR, type=kind, key=key, node=node)

    def record(self, file: Path | str) -> None:
        """Records requests and responses to a file, for `odradek judge`. The recording ends when the cluster is
        deleted. Raises Refused, or OSError if the file cannot be created."""
        # The thread that copies the recording closes both the file and the stream.
        written = Path(file).open("wb")  # noqa: SIM115
        try:
            exchanges = self._odradek.stream(f"/clusters/{self.id}{table.RECORDING.path}")
        except BaseException:
            written.close()
            raise
        done: Future[None] = Future()
        self._recordings.append(done)

        def copy() -> None:
            try:
                with written, exchanges:
                    while block := exchanges.read1():
                        written.write(block)
            except (OSError, HTTPException) as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        Thread(target=copy, daemon=True).start()

    def lease(self, ttl_s: int | None) -> None:
        """Has the cluster deleted after `ttl_s` seconds, unless `lease` is called again before then. If `ttl_s` is
        None, the cluster is never deleted automatically."""
        self._ask(table.LEASE, ttl_s=ttl_s)

    def delete(self) -> None:
        """Deletes the cluster, including its connections and files. Raises OSError if a recording could not be
        written."""
        self._ask(table.DELETE)
        for recording in self._recordings:
            recording.result()


class Clock:
    """A cluster's clock. Times are in milliseconds since the epoch."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def now_ms(self) -> int:
        """The cluster's time."""
        now_ms: int = self._cluster._ask(table.NOW)["now_ms"]
        return now_ms

    def freeze(self) -> None:
        """Stops the clock."""
        self._cluster._ask(table.CLOCK, how="freeze")

    def resume(self) -> None:
        """Restarts the clock after `freeze`."""
        self._cluster._ask(table.CLOCK, how="resume")

    def advance(self, ms: int) -> None:
        """Advances the clock by `ms` milliseconds. Returns once all work that became due is done."""
        self._cluster._ask(table.CLOCK, how="advance", ms=ms)

    def set(self, now_ms: int) -> None:
        """Sets the clock to `now_ms`. A later time has the same effect as `advance`; an earlier time does not affect
        timers."""
        self._cluster._ask(table.CLOCK, how="set", ms=now_ms)


# The program that the process runs. It exits when its standard input is closed, which happens no matter how the parent
# process ends. It then removes the temporary folder, because a parent that was killed cannot do so.
TETHERED = """
import os, runpy, shutil, signal, sys, threading
left = []
def watch(folder=sys.argv.pop(1)):
    while os.read(0, 4096):
        pass
    left.append(folder)
    signal.raise_signal(signal.SIGTERM)  # os.kill would end the process at once on Windows
threading.Thread(target=watch, daemon=True).start()
try:
    runpy.run_module("odradek", run_name="__main__", alter_sys=True)
finally:
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
"""


class Process:
    """A process that runs `odradek serve --control --ephemeral`. It exits when the process that started it exits, even
    if that process is killed. `ready` contains the addresses from the ready file."""

    def __init__(self, settings: Mapping[str, str], record: Path | None = None) -> None:
        """Starts the process and waits until it is ready. If `record` is given, requests and responses are recorded to
        this file. Raises RuntimeError with the process's output if it does not start."""
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-testing-")
        ready = Path(self._folder.name) / "ready.json"
        words = [sys.executable, "-c", TETHERED, self._folder.name]
        words += ["serve", "--control", "--ephemeral", "--port", "0"]
        for name, value in {"odradek.http.port": "0", **settings}.items():
            words += ["--override", f"{name}={value}"]
        if record is not None:
            words += ["--record", str(record)]
        with (Path(self._folder.name) / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*words, "--ready-file", str(ready)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C in a terminal must stop only the tests; `stop` then stops the broker.
                process_group=GROUP_OF_ITS_OWN,
                creationflags=GROUP_FLAGS,
            )
        until_s = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > until_s:
                said = (Path(self._folder.name) / "log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"`odradek serve --control` did not start: {said.strip()}")
            time.sleep(POLL_INTERVAL_S)
        self.ready: dict[str, Json] = json.loads(ready.read_text())

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # `watch` notices that the input is closed on every system; Windows has no SIGTERM
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()
