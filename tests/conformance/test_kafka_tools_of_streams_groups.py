"""Tests that kafka-streams-groups from Kafka 4.3.1 works with streams groups on Kafka 4.4.0 and on Odradek.

Rules: docs/spec/streams-groups.md#s7, #s13-7. Kafka 4.4.0's tools have not been published.
"""

from pathlib import Path

from odradek.protocol.errors import ErrorCode
from tests.conformance.streams_scene import I4, SETTINGS, Scene, subtopology, talk_to, topology
from tests.conformance.test_streams_group_offsets import commit, fetch
from tests.conformance.tools import ToolResult, Tools
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.oracle import needs_kafka
from tests.unit.tools.inspect.test_as_kafka_dumps import entries, said, said_by_kafka

pytestmark = needs_kafka


def test_scenario_134_a_group_is_described_reset_and_deleted(
    tools: Tools, streams_broker: Broker, scene: Scene
) -> None:
    changelog = scene.named("counts-changelog")
    scene.topology = topology(subtopology(changelogs=[changelog]))
    a = scene.member("a")
    a.join()
    a.beat_for_tasks()
    assert commit(scene, "a", a.epoch) == [ErrorCode.NONE]

    def run(*words: str) -> ToolResult:
        return tools.run("streams-groups", "--bootstrap-server", streams_broker.bootstrap, *words)

    of_group = ("--group", scene.group)
    (state,) = run("--describe", *of_group, "--state", "--verbose").rows
    epochs = (state["GROUP-EPOCH"], state["TARGET-ASSIGNMENT-EPOCH"])
    assert (state["STATE"], *epochs, state["#MEMBERS"]) == ("Stable", "3", "3", "1")
    (member,) = run("--describe", *of_group, "--members", "--verbose").rows
    assert (member["TOPOLOGY-EPOCH"], member["MEMBER-PROTOCOL"], member["MEMBER-EPOCH"]) == ("0", "streams", "3")
    assert member["ASSIGNMENTS"] == "ACTIVE: 0:[0,1,2,3]; TARGET-ACTIVE: 0:[0,1,2,3];"
    offsets = {row["PARTITION"]: row for row in run("--describe", *of_group, "--offsets", "--verbose").rows}
    assert {row["TOPIC"] for row in offsets.values()} == {I4}
    assert [offsets[index]["CURRENT-OFFSET"] for index in "0123"] == ["7", "-", "-", "-"]
    assert {row["GROUP"]: row["STATE"] for row in run("--list", "--state").rows}[scene.group] == "Stable"
    refused = f"Streams group '{scene.group}' is not EMPTY."
    assert refused in run("--delete", *of_group).stdout

    a.leave()
    assert f"Streams group '{scene.group}' has no active members." in run("--describe", *of_group, "--state").stdout
    to_earliest = ("--reset-offsets", *of_group, "--to-earliest", "--all-input-topics")
    reset = {"GROUP": scene.group, "TOPIC": I4, "PARTITION": "0", "NEW-OFFSET": "0"}
    assert run(*to_earliest, "--dry-run").rows == [reset]
    assert fetch(scene, None, -1) == (ErrorCode.NONE, 7)
    assert run(*to_earliest, "--execute").rows == [reset]
    assert fetch(scene, None, -1) == (ErrorCode.NONE, 0)
    deleted = run("--delete", *of_group, "--delete-all-internal-topics").stdout
    assert f"Deletion of requested streams groups ('{scene.group}') was successful." in deleted
    assert scene.partitions_of(changelog) == 0
    assert scene.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND.value


def test_dump_log_and_inspect_say_the_same_of_every_record(tools: Tools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        scene = Scene(talk_to(broker), "dumped")
        scene.make_shared_topics()
        scene.topology = topology(subtopology(changelogs=[scene.named("counts-changelog")]))
        a, static = scene.member("a"), scene.member("s", instance_id="one")
        a.join()
        a.beat_for_tasks()
        static.join()
        reply = a.beat()
        a.beat(reply.active)
        static.beat(instance_id="one")
        static.leave(-2, instance_id="one")
        scene.talk.close()
    (log,) = sorted((tmp_path / "data" / "__consumer_offsets-0").glob("*.log"))
    ran = tools.run("dump-log", "--offsets-decoder", "--files", log)
    lines = [line for line in ran.lines if line.startswith("| offset")]
    ours = [entry for entry in entries(log) if entry.kind != "batch"]
    types: set[int] = set()
    for entry, line in zip(ours, lines, strict=True):
        assert said(entry) == said_by_kafka(line), line
        types.add(int(line.partition('key: {"type":"')[2].partition('"')[0]))
    assert types >= {17, 19, 20, 21, 22, 23}
