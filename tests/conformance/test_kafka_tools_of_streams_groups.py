"""kafka-streams-groups of Kafka 4.3.1 with streams groups, on Kafka 4.4.0 and on Odradek.

Rules: docs/spec/streams-groups.md#s7, #s13-7. Kafka 4.4.0 was published without its tools.
"""

from odradek.protocol.errors import ErrorCode
from tests.conformance.streams_scene import I4, Scene, subtopology, topology
from tests.conformance.test_streams_group_offsets import commit, fetch
from tests.conformance.tools import Ran, Tools
from tests.support.broker_process import Broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka


def rows(ran: Ran) -> list[dict[str, str]]:
    """The lines of a table by the words of its heading."""
    lines = [line for line in ran.lines if line.strip()]
    at = next(number for number, line in enumerate(lines) if line.startswith("GROUP "))
    heading = lines[at].replace("COORDINATOR (ID)", "COORDINATOR ID").split()
    found = [line.replace("process of a", "process").split(maxsplit=len(heading) - 1) for line in lines[at + 1 :]]
    return [dict(zip(heading, (word.strip() for word in words), strict=True)) for words in found]


def test_scenario_134_a_group_is_described_reset_and_deleted(
    tools: Tools, streams_broker: Broker, scene: Scene
) -> None:
    changelog = scene.named("counts-changelog")
    scene.topology = topology(subtopology(changelogs=[changelog]))
    a = scene.member("a")
    a.join()
    a.beat_for_tasks()
    assert commit(scene, "a", a.epoch) == [ErrorCode.NONE]

    def run(*words: str) -> Ran:
        return tools.run("streams-groups", "--bootstrap-server", streams_broker.bootstrap, *words)

    of_group = ("--group", scene.group)
    (state,) = rows(run("--describe", *of_group, "--state", "--verbose"))
    epochs = (state["GROUP-EPOCH"], state["TARGET-ASSIGNMENT-EPOCH"])
    assert (state["STATE"], *epochs, state["#MEMBERS"]) == ("Stable", "3", "3", "1")
    (member,) = rows(run("--describe", *of_group, "--members", "--verbose"))
    assert (member["TOPOLOGY-EPOCH"], member["MEMBER-PROTOCOL"], member["MEMBER-EPOCH"]) == ("0", "streams", "3")
    assert member["ASSIGNMENTS"] == "ACTIVE: 0:[0,1,2,3]; TARGET-ACTIVE: 0:[0,1,2,3];"
    offsets = {row["PARTITION"]: row for row in rows(run("--describe", *of_group, "--offsets", "--verbose"))}
    assert {row["TOPIC"] for row in offsets.values()} == {I4}
    assert [offsets[index]["CURRENT-OFFSET"] for index in "0123"] == ["7", "-", "-", "-"]
    assert {row["GROUP"]: row["STATE"] for row in rows(run("--list", "--state"))}[scene.group] == "Stable"
    refused = f"Streams group '{scene.group}' is not EMPTY."
    assert refused in run("--delete", *of_group).stdout

    a.leave()
    assert f"Streams group '{scene.group}' has no active members." in run("--describe", *of_group, "--state").stdout
    to_earliest = ("--reset-offsets", *of_group, "--to-earliest", "--all-input-topics")
    reset = {"GROUP": scene.group, "TOPIC": I4, "PARTITION": "0", "NEW-OFFSET": "0"}
    assert rows(run(*to_earliest, "--dry-run")) == [reset]
    assert fetch(scene, None, -1) == (ErrorCode.NONE, 7)
    assert rows(run(*to_earliest, "--execute")) == [reset]
    assert fetch(scene, None, -1) == (ErrorCode.NONE, 0)
    deleted = run("--delete", *of_group, "--delete-all-internal-topics").stdout
    assert f"Deletion of requested streams groups ('{scene.group}') was successful." in deleted
    assert scene.partitions_of(changelog) == 0
    assert scene.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND.value
