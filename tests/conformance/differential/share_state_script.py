"""Scripts for the share coordinator (KIP-932): InitializeShareGroupState to ReadShareGroupStateSummary.

The scripts play the rules of docs/spec/share-groups.md#s4-2 to #s4-4, and scenarios 71 to 76, including errors.
"""

from collections.abc import Callable

from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.share_state_scene import SHARE, StateScene, wait_for_share_coordinator

FIND_COORDINATOR, INITIALIZE, READ, WRITE, DELETE, SUMMARY = 10, 83, 84, 85, 86, 87
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def coordinator_keys(talk: Talk, version: int) -> None:
    """Looks up the coordinators of share partitions with valid and invalid keys. A valid key is
    `group:topicId:partition`."""
    wait_for_share_coordinator(talk)
    topic_id = "A" * 22
    for key in (
        f"g:{topic_id}:0",
        f"a:b:{topic_id}:0",
        f"g:{topic_id}:-1",
        f"g:{topic_id}:+1",
        f"g:{topic_id}:2147483647",
        f"g:{topic_id}:2147483648",
        f"g:{topic_id}:x",
        f"g:{topic_id}:",
        f"g:{topic_id}:0:",
        f":{topic_id}:0",
        f" :{topic_id}:0",
        f"g:{topic_id}==:0",
        f"g:{topic_id}A:0",
        f"g:{topic_id[1:]}+:0",
        "g:short:0",
        "g::0",
        f"g:{topic_id}",
        "g",
        "",
    ):
        request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
        if version < 4:
            request = FindCoordinatorRequest(key_type=SHARE, key=key)
        talk.ask(f"the coordinator of {key!r}", request, version)


def initialized(talk: Talk, version: int) -> None:
    """Initializes share partitions, including one with an impossible start offset (S6 of
    docs/spec/kafka-4.4.md#s5-3)."""
    scene = StateScene(talk, "initialized", INITIALIZE, version)
    scene.nowhere(scene.initialize, 1, -1)
    scene.stored("with no start offset")
    scene.initialize("a start offset", 1, 5)
    scene.stored("with a start offset")
    scene.initialize("a lower epoch", 0, 9)
    scene.initialize("the same again", 1, 5)
    scene.initialize("another start offset", 1, 3)
    scene.stored("with another start offset")
    scene.write("written", 1, 0, 3, (3, 9, ACKNOWLEDGED, 1))
    scene.initialize("a higher epoch", 4, 7)
    scene.stored("begun anew")
    scene.read("a leader", 6)
    scene.initialize("at the leader", 5, 2)
    scene.read("the same leader", 6)
    scene.summarize("the same leader", 6)
    scene.write("the same leader", 5, 6, 2, (2, 2, ACKNOWLEDGED, 1))
    scene.write("a former leader", 5, 5, 2, (2, 2, ACKNOWLEDGED, 1))
    scene.summarize("the same leader wrote", 6)
    scene.initialize("behind the leader", 5, 2)
    scene.stored("behind the leader")
    scene.initialize("both partitions", 6, 1 << 40, partitions=(0, 1))
    scene.initialize("an impossible start offset", 7, -5)
    scene.stored("an impossible start offset")


def read(talk: Talk, version: int) -> None:
    """Reads states at several leader epochs, including a negative one (S4 of docs/spec/kafka-4.4.md#s5-3)."""
    scene = StateScene(talk, "read", READ, version)
    scene.read("not initialized", 0)
    scene.nowhere(scene.read, 0)
    scene.initialize("initialized", 3, 10, partitions=(0, 1))
    scene.nowhere(scene.read, 2)
    for epoch in (5, 5, 4, -1, 7, 0):
        scene.read(f"leader epoch {epoch}", epoch)
    scene.write("written by the leader", 3, 7, 10, (10, 19, AVAILABLE, 1), (20, 20, ACKNOWLEDGED, 1))
    scene.read("what is written", 7)
    scene.read("both", 8, partitions=(1, 0))


def written(talk: Talk, version: int) -> None:
    """Writes states at current, earlier and negative epochs (S5 of docs/spec/kafka-4.4.md#s5-3)."""
    scene = StateScene(talk, "written", WRITE, version)
    scene.write("not initialized", 0, 0, 0)
    scene.nowhere(scene.write, 0, 0, 0)
    scene.initialize("initialized", 3, 0, partitions=(0, 1))
    scene.nowhere(scene.write, 3, 0, 0)
    scene.read("a leader", 5)
    scene.write("a former leader", 3, 4, 0, (0, 9, ACKNOWLEDGED, 1))
    scene.write("a former state", 2, 5, 0, (0, 9, ACKNOWLEDGED, 1))
    scene.write("former both", 2, 4, 0, (0, 9, ACKNOWLEDGED, 1))
    scene.write("negative epochs", -1, -1, 0, (0, 9, AVAILABLE, 1))
    scene.stored("nothing was written")
    scene.write("a state to come", 9, 5, 0, (0, 0, AVAILABLE, 1))
    scene.write("a leader to come", 3, 9, 0, (1, 1, AVAILABLE, 1))
    scene.write("the leader after it", 3, 5, 0, (2, 2, AVAILABLE, 1))
    scene.stored("from epochs to come")
    scene.write("both partitions", 3, 5, 0, (4, 4, AVAILABLE, 1), partitions=(1, 0))


def merged(talk: Talk, version: int) -> None:
    """Writes batches that overlap stored batches (S11 of docs/spec/kafka-4.4.md#s5-3)."""
    scene = StateScene(talk, "merged", WRITE, version)
    scene.initialize("initialized", 1, 0)
    scene.write("acknowledged", 1, 0, 0, (0, 9, ACKNOWLEDGED, 1))
    scene.write("available, later and lower", 1, 0, 0, (0, 9, AVAILABLE, 1))
    scene.stored("acknowledged")
    scene.write("a higher count", 1, 0, 0, (3, 5, AVAILABLE, 2))
    scene.stored("with a hole")
    scene.write("overlapping", 1, 0, 0, (8, 14, ARCHIVED, 1), (12, 20, AVAILABLE, 1), (12, 12, AVAILABLE, 3))
    scene.stored("overlapping")
    scene.write("neighbours", 1, 0, 0, (21, 22, AVAILABLE, 1), (23, 30, AVAILABLE, 1))
    scene.stored("neighbours")
    scene.write("a higher start offset", 1, 0, 4)
    scene.stored("from 4")
    scene.write("a start offset within a batch, and one below it", 1, 0, 15, (0, 3, ACKNOWLEDGED, 1))
    scene.stored("from 15")
    scene.write("no start offset", 1, 0, -1, (31, 31, ACKNOWLEDGED, 1))
    scene.stored("as before, and one more")
    scene.write("states that are none", 1, 0, 15, (40, 40, 1, 1), (41, 41, 3, 1), (42, 42, 7, 1), (43, 43, -1, 1))
    scene.stored("states that are none")
    scene.write("beyond all", 1, 0, 100)
    scene.stored("nothing is left")


def counted(talk: Talk, version: int) -> None:
    """Writes delivery-complete counts, which version 0 does not have (S8 and S9 of docs/spec/kafka-4.4.md#s5-3)."""
    scene = StateScene(talk, "counted", WRITE, version)
    scene.initialize("initialized", 1, 0)
    for offset, complete in ((0, 3), (0, 7), (10, 2), (10, 0)):
        if version >= 1:
            scene.write(f"{complete} from {offset}", 1, 0, offset, complete=complete)
            scene.stored(f"{complete} from {offset}")
    scene.write("unsaid", 1, 0, 20)
    scene.stored("unsaid")
    scene.write("a lower start offset", 1, 0, 5)
    scene.stored("a lower start offset")


def updates_and_snapshots(talk: Talk, version: int) -> None:
    """Writes more updates than the coordinator stores between two snapshots. A snapshot does not change the result."""
    scene = StateScene(talk, "updates", WRITE, version)
    scene.initialize("initialized", 1, 0)
    for offset in range(0, 520, 2):
        scene.write("one of many", 1, 0, offset // 4, (offset, offset, ACKNOWLEDGED, 1), (offset + 1, offset + 1, 0, 1))
    scene.stored("many")


def deleted(talk: Talk, version: int) -> None:
    scene = StateScene(talk, "deleted", DELETE, version)
    scene.delete("not initialized")
    scene.nowhere(scene.delete)
    scene.initialize("initialized", 3, 0, partitions=(0, 1))
    scene.write("written", 3, 0, 0, (0, 9, ACKNOWLEDGED, 1))
    scene.delete("deleted")
    scene.stored("deleted")
    scene.write("written after", 3, 0, 0, (0, 9, ACKNOWLEDGED, 1))
    scene.delete("deleted again")
    scene.summarize("the other one", 0, partitions=(1,))
    scene.initialize("at a lower epoch", 1, 2)
    scene.stored("begun anew")


def summarized(talk: Talk, version: int) -> None:
    """Reads summaries at several leader epochs, including a negative one (S7 of docs/spec/kafka-4.4.md#s5-3)."""
    scene = StateScene(talk, "summarized", SUMMARY, version)
    scene.summarize("not initialized", 0)
    scene.nowhere(scene.summarize, 0)
    scene.initialize("initialized", 3, -1, partitions=(0, 1))
    scene.nowhere(scene.summarize, 0)
    scene.summarize("undecided", 0)
    scene.read("a leader", 5)
    for epoch in (5, 4, 9, -1):
        scene.summarize(f"leader epoch {epoch}", epoch)
    scene.write("written", 3, 5, 2, (2, 9, ACKNOWLEDGED, 1))
    scene.summarize("written", 5)


def without_topic(talk: Talk, version: int) -> None:
    """Deletes the topic. Its share state is deleted a moment later."""
    scene = StateScene(talk, "gone", SUMMARY, version)
    scene.initialize("initialized", 3, 2)
    talk.quietly(DeleteTopicsRequest(topics=[DeleteTopicState(name=scene.topic)], timeout_ms=20_000), 6)
    scene.wait_until_coordinators_know(is_there=False)
    scene.summarize("gone", 0)
    scene.initialize("begun", 4, 2)
    scene.delete("deleted")


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    coordinator_keys: FIND_COORDINATOR,
    initialized: INITIALIZE,
    read: READ,
    **dict.fromkeys((written, merged, counted, updates_and_snapshots), WRITE),
    deleted: DELETE,
    **dict.fromkeys((summarized, without_topic), SUMMARY),
}

LOWEST = {coordinator_keys: 1}  # the first version with key types
