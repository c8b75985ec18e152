"""Runs Kafka's command line tools, all in one JVM."""

import itertools
import json
import os
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from tests.support.oracle import run_kafka

JAVA_SOURCES = Path(__file__).parent / "java"
# The tools run briefly and share the cores with the broker, so one compiler and a small heap are enough.
QUICK_JVM = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TOOLS = "org.apache.kafka.tools."
MAIN_CLASSES = {
    "acls": TOOLS + "AclCommand",
    "assign": "Assign",  # ours: java/Assign.java
    "broker-api-versions": TOOLS + "BrokerApiVersionsCommand",
    "cluster": TOOLS + "ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": TOOLS + "consumer.ConsoleConsumer",
    "console-producer": TOOLS + "ConsoleProducer",
    "consumer-groups": TOOLS + "consumer.group.ConsumerGroupCommand",
    "consumer-perf": TOOLS + "ConsumerPerformance",
    "delegation-tokens": TOOLS + "DelegationTokenCommand",
    "delete-records": TOOLS + "DeleteRecordsCommand",
    "dump-log": TOOLS + "DumpLogSegments",
    "e2e-latency": TOOLS + "EndToEndLatency",
    "features": TOOLS + "FeatureCommand",
    "get-offsets": TOOLS + "GetOffsetShell",
    "grouped": "Grouped",  # ours: java/Grouped.java
    "groups": TOOLS + "GroupsCommand",
    "log-dirs": TOOLS + "LogDirsCommand",
    "console-share-consumer": TOOLS + "consumer.ConsoleShareConsumer",
    "producer-perf": TOOLS + "ProducerPerformance",
    "share-groups": TOOLS + "consumer.group.ShareGroupCommand",
    "shared": "Shared",  # ours: java/Shared.java
    "streams-groups": TOOLS + "streams.StreamsGroupCommand",
    "topics": TOOLS + "TopicCommand",
    "transactional": "Transactional",  # ours: java/Transactional.java
    "transactional-message-copier": TOOLS + "TransactionalMessageCopier",
    "transactions": TOOLS + "TransactionsCommand",
    "verifiable-consumer": TOOLS + "VerifiableConsumer",
    "verifiable-producer": TOOLS + "VerifiableProducer",
}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The output and exit status of a tool."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of the printed table, each with its cells by column heading. Messages above a table of groups are
        skipped. Only cells in the last column may contain spaces."""
        lines = [line.strip() for line in self.lines if line.strip()]
        if not lines:
            return []
        head = next((at for at, line in enumerate(lines) if line.startswith("GROUP ")), 0)
        headings = lines[head].replace("COORDINATOR (ID)", "COORDINATOR ID").split()
        cells = (line.split(maxsplit=len(headings) - 1) for line in lines[head + 1 :])
        return [dict(zip(headings, each, strict=False)) for each in cells]

    def __str__(self) -> str:
        return f"status {self.status}\n--- stdout\n{self.stdout[-4000:]}\n--- stderr\n{self.stderr[-4000:]}"


class Tools:
    """The JVM in which Kafka's tools run. Tools can run concurrently: `start` returns immediately, whereas `run` waits
    for the tool to finish and checks its exit status."""

    def __init__(self, classes: Path, *release: str) -> None:
        """Compiles the driver and starts the JVM.

        classes  an empty directory for the compiled driver
        release  release of Kafka whose classes are used; the default is the newest release with tools on Maven Central;
                 other releases can only run our own programs
        """
        classpath = run_kafka("classpath", *(f"--version={each}" for each in release)).strip().splitlines()[-1]
        names = ("Tools", "Transactional", "Grouped", "Shared", "Assign")
        sources = [str(JAVA_SOURCES / f"{name}.java") for name in names]
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", str(classes), *sources], check=True)
        config = Path(classpath).parent.parent / "log4j2-tools.yaml"
        self._process = subprocess.Popen(
            [
                "java",
                *QUICK_JVM,
                f"-Dlog4j2.configurationFile={config}",
                "-cp",
                f"{classes}{os.pathsep}{classpath}",
                "Tools",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._ids = itertools.count()
        self._waiting: dict[int, Future[ToolResult]] = {}
        threading.Thread(target=self._collect, daemon=True).start()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def start(self, tool: str, *words: object, stdin: str = "") -> Future[ToolResult]:
        number, future = next(self._ids), Future[ToolResult]()
        self._waiting[number] = future
        request = {"id": number, "main": MAIN_CLASSES[tool], "args": [str(word) for word in words], "stdin": stdin}
        requests = cast(IO[str], self._process.stdin)
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        return future

    def run(self, tool: str, *words: object, stdin: str = "", status: int = 0, timeout_s: float = 60) -> ToolResult:
        ran = self.start(tool, *words, stdin=stdin).result(timeout_s)
        assert ran.status == status, f"{tool} {' '.join(map(str, words))}: {ran}"
        return ran

    def _collect(self) -> None:
        for line in cast(IO[str], self._process.stdout):
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(ToolResult(answer["status"], answer["stdout"], answer["stderr"]))
