"""Tests that DumpLogSegments reads every type of file that Odradek wrote under load, without complaints.

The tests ignore the message `-1 is followed by N` about segments that do not begin at offset 0. The tool prints it for
Kafka's own intact files too.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.admin import create_topic, new_admin
from tests.clients.speakers import SPEAKERS, Message, wait_for
from tests.conformance.tools import ToolResult, Tools
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

SETTINGS: dict[str, object] = {"offsets.topic.num.partitions": 2, "log.segment.bytes": 1_048_576}
DECODERS = {
    "__consumer_offsets-*": "--offsets-decoder",
    "__cluster_metadata-0": "--cluster-metadata-decoder",
    "__transaction_state-*": "--transaction-log-decoder",
    "[!_]*-*": "--print-data-log",
}
OF_GOOD_FILES_TOO = re.compile(r"-1 is followed by \d+|^Non-consecutive offsets in |^\s*$")
COMPLAINT = re.compile(
    r"(?i)corrupt|mismatch|non-consecutive|is followed by|not found in|invalid|exception|error|failed"
)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with new_broker(tmp_path_factory.mktemp("ours") / "data", SETTINGS) as broker:
        work(broker)
        if request.param == "killed":
            broker.kill9()
            broker.start()  # Recovery rewrites indexes and snapshots, and a clean stop trims them.
        broker.stop()
        yield broker.data_dir


def work(broker: Broker) -> None:
    at = broker.bootstrap
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for speaker in SPEAKERS.values():
            topic = create_topic(at, f"codec-{codec}", 2)
            messages = [Message(b"value %d " % n * 20, key=b"k%d" % n, partition=n % 2) for n in range(200)]
            speaker.produce(at, topic, messages, compression=codec)
    rolled = create_topic(at, "rolled")
    SPEAKERS["confluent-kafka"].produce(at, rolled, [Message(bytes(range(256)) * 40) for _ in range(400)])
    compacted = create_topic(at, "compacted", config={"cleanup.policy": "compact", "segment.bytes": 1_048_576})
    SPEAKERS["confluent-kafka"].produce(at, compacted, [Message(b"v" * 5000, key=b"k%d" % (n % 9)) for n in range(500)])
    stamped = create_topic(at, "stamped", config={"message.timestamp.type": "LogAppendTime"})
    SPEAKERS["aiokafka"].produce(at, stamped, [Message(b"v")] * 50)
    member = SPEAKERS["kafka-python"].join(at, rolled, "a-group")
    wait_for("records", lambda: member.poll() != [])
    member.commit()
    member.close()
    new_admin(at).delete_topics([create_topic(at, "deleted")])


def dump(tools: Tools, files: list[Path], *options: str) -> ToolResult:
    return tools.run("dump-log", *options, "--files", ",".join(map(str, files)), timeout_s=120)


def complaints(ran: ToolResult) -> list[str]:
    """Returns the lines that report a fault. Skips lines that print a record or batch, because their contents could
    look like a fault."""
    lines = (ran.stdout + ran.stderr).splitlines()
    printed = re.compile(r"^(baseOffset|\| offset|offset|timestamp|Dumping|Starting|Log starting|producerId)")
    return [
        line
        for line in lines
        if COMPLAINT.search(line) and not printed.match(line) and not OF_GOOD_FILES_TOO.search(line)
    ]


@pytest.mark.parametrize("pattern", DECODERS)
def test_every_log_is_read_to_its_last_record(tools: Tools, directory: Path, pattern: str) -> None:
    files = [path for path in sorted(directory.glob(f"{pattern}/*.log")) if path.stat().st_size]
    if not files:
        pytest.skip(f"no {pattern} here")
    ran = dump(tools, files, "--deep-iteration", DECODERS[pattern])
    assert complaints(ran) == []
    ends: dict[Path, int] = {}
    current = None
    for line in ran.lines:
        if line.startswith("Dumping "):
            current = Path(line.removeprefix("Dumping "))
        elif current and (
            found := re.match(r"baseOffset: .*\bposition: (\d+) .*\bsize: (\d+)\b.*\bisvalid: (\w+)", line)
        ):
            assert found[3] == "true", line
            ends[current] = int(found[1]) + int(found[2])
    assert ends == {path: path.stat().st_size for path in files}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_index_agrees_with_its_log(tools: Tools, directory: Path, suffix: str) -> None:
    files = sorted(directory.glob(f"*/*{suffix}"))
    assert any(path.stat().st_size for path in files)
    assert complaints(dump(tools, files, "--index-sanity-check")) == []
    assert complaints(dump(tools, files, "--verify-index-only")) == []
    assert complaints(dump(tools, files)) == []


@pytest.mark.parametrize("suffix", [".snapshot", ".txnindex", ".checkpoint"])
def test_every_other_file_is_read(tools: Tools, directory: Path, suffix: str) -> None:
    files = sorted(directory.glob(f"*/*{suffix}"))
    if not files:
        pytest.skip(f"no {suffix} here")
    ran = dump(tools, files, *(["--cluster-metadata-decoder"] if suffix == ".checkpoint" else []))
    assert complaints(ran) == []
    assert ran.stdout.count("Dumping ") == len(files)


def test_there_is_a_snapshot_with_the_producers(tools: Tools, directory: Path) -> None:
    (newest,) = [max(directory.glob("rolled-*-0/*.snapshot"))]
    ran = dump(tools, [newest])
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: 399\b", ran.stdout), ran.stdout
