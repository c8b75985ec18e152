"""Scripts for share groups (KIP-932): heartbeats, fetches and acknowledgements. Each script uses its own groups.

The scripts play scenes from docs/spec/share-groups.md#s7.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
)
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ForgottenTopic
from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from odradek.protocol.struct import ZERO_UUID
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.share_group_scene import Batch, ShareScene, other_groups

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE = 76, 77, 78, 79
MODES_SINCE = RENEWAL_SINCE = 2
RECORD_LIMIT = 1


def heartbeats(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "beats")
    scene.beat("no such group", "A", 3)
    scene.beat("no such group, leaving", "A", -1)
    scene.beat("no topics", "A", 0)
    scene.beat("empty topics", "A", 0, subscribed_topic_names=[])
    scene.beat("epoch -2", "A", -2)
    subscription = {"subscribed_topic_names": [scene.topic]}
    for label, member in {"no": "", "a blank": " ", "a long": "x" * 37}.items():
        scene.beat(f"{label} member id", member, 0, **subscription)
    scene.beat("no group id", "A", 0, group="", **subscription)
    scene.beat("a blank group id", "A", 0, group=" ", **subscription)
    scene.beat("an empty rack", "A", 0, rack_id="", **subscription)
    scene.beat("a blank rack", "A", 0, rack_id=" ", **subscription)
    for label, group in other_groups(scene).items():
        scene.beat(f"{label}, joining", "A", 0, group=group, **subscription)
        scene.beat(f"{label}, staying", "A", 3, group=group)
        scene.beat(f"{label}, leaving", "A", -1, group=group)
    scene.beat("the longest member id", "x" * 36, 0, group=f"{scene.group}-long", **subscription)
    scene.beat("join", "A", 0, **subscription)
    scene.beat("unknown member", "B", 3)
    scene.beat("unknown member, leaving", "B", -1)
    scene.beat("too high", "A", 99)
    scene.beat("too low", "A", 1)
    scene.beat("leave", "A", -1, subscribed_topic_names=[])
    scene.beat("leave again", "A", -1)
    scene.beat("stay", "A", 2)


def subscriptions(talk: Talk, version: int) -> None:
    """Subscribes only to unknown topics. Known topics would be initialized, which takes different amounts of time on
    the two brokers."""
    scene = ShareScene(talk, version, "subscriptions")
    joined = scene.beat("of a topic that is not", "A", 0, subscribed_topic_names=["nope", "bad name!"])
    scene.beat("the same", "A", joined.member_epoch)
    scene.beat("join again", "A", 0, subscribed_topic_names=["nope", "bad name!"])
    changed = scene.beat("another", "A", joined.member_epoch, subscribed_topic_names=["nope2"])
    scene.beat("none", "A", changed.member_epoch, subscribed_topic_names=[])
    scene.beat("a rack", "A", changed.member_epoch, rack_id="r")
    scene.beat("a second member", "B", 0, subscribed_topic_names=["nope"])


def described(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "described")
    others = other_groups(scene)
    group_ids = ["none", *others.values()]
    talk.ask("missing", ShareGroupDescribeRequest(group_ids=group_ids), version)
    talk.ask("operations", ShareGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=True), version)
    talk.ask("no groups", ShareGroupDescribeRequest(group_ids=[]), version)
    scene.begin()
    groups = talk.quietly(ShareGroupDescribeRequest(group_ids=[scene.group]), version).groups
    (member,) = groups[0].members
    talk.note("states", [groups[0].group_state, groups[0].assignor_name, member.subscribed_topic_names])
    scene.leave()
    found = talk.quietly(
        ShareGroupDescribeRequest(group_ids=[scene.group, scene.group], include_authorized_operations=True), version
    ).groups
    talk.note("empty", [(each.group_state, each.members, each.authorized_operations) for each in found])


def sessions(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "sessions")
    scene.begin()
    scene.fetch("no session", "A", 1)
    scene.acknowledge("no session", "A", 1, (0, 9, [1]))
    scene.fetch("open", "A", 0)
    scene.fetch("a wrong epoch", "A", 5)
    scene.acknowledge("epoch 0", "A", 0, (0, 9, [1]))
    scene.acknowledge("out of shape", "A", 1, (5, 4, [1]))
    scene.acknowledge("no types", "A", 2, (0, 9, []))
    scene.acknowledge("too many types", "A", 3, (0, 1, [1, 1, 1]))
    scene.acknowledge("an unknown type", "A", 4, (0, 9, [7]))
    scene.acknowledge("beyond", "A", 5, (0, 20, [1]))
    scene.acknowledge("in part", "A", 6, (0, 4, [1]), (5, 9, [1, 2, 3, 0, 1]))
    scene.acknowledge("again", "A", 7, (7, 7, [1]))
    scene.fetch("what was released", "A", 8, topics=[])
    scene.acknowledge("below the start offset", "A", 9, (0, 4, [1]))
    scene.acknowledge("the end", "A", -1, (6, 6, [1]))
    scene.fetch("after the end", "A", 10)


def two_members(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "two")
    scene.begin()
    scene.fetch("A takes all", "A", 0)
    scene.fetch("B gets nothing", "B", 0, max_wait_ms=300)
    scene.acknowledge("B has none", "B", 1, (0, 9, [1]))
    scene.acknowledge("A ends", "A", -1, (0, 4, [1]))
    time.sleep(0.3)
    scene.fetch("B gets the rest", "B", 2, topics=[])
    scene.acknowledge("B rejects it", "B", 3, (5, 9, [3]))


def wrong_fetches(talk: Talk, version: int) -> None:
    """Sends invalid fetches and acknowledgements. One fetch requests only an unknown topic id (S3 of
    docs/spec/kafka-4.4.md#s5-3)."""
    scene = ShareScene(talk, version, "wrong-fetches")
    scene.begin()
    wrong: dict[str, dict[str, Any]] = {
        "no group": {"group_id": None},
        "no member": {"member_id": None},
        "an empty member": {"member_id": ""},
        "a long member": {"member_id": "x" * 37},
        "acknowledgements at epoch 0": {"acknowledgements": [(0, 9, [1])]},
    }
    for label, fields in wrong.items():
        scene.fetch(label, "A", 0, **fields)
        scene.acknowledge(f"{label}, acknowledged", "A", 0, (0, 9, [1]))
    scene.fetch("the end of no session", "A", -1)
    scene.fetch("no records wanted", "A", 0, max_records=0)
    scene.fetch("no bytes wanted", "A", 1, max_bytes=0, topics=[])
    unknown = [FetchPartition(partition_index=index) for index in (7, -1)]
    scene.fetch(
        "unknown partitions",
        "A",
        2,
        max_wait_ms=0,
        max_records=0,
        topics=[FetchTopic(topic_id=scene.topic_id, partitions=unknown)],
    )
    scene.fetch(
        "forgotten",
        "A",
        3,
        max_records=0,
        topics=[],
        forgotten_topics_data=[ForgottenTopic(topic_id=scene.topic_id, partitions=[7, -1, 5])],
    )
    scene.fetch("all", "A", 4, topics=[])
    nowhere = [FetchTopic(topic_id=b"\x07" * 16, partitions=[FetchPartition(partition_index=0)])]
    scene.fetch("an unknown topic id", "B", 0, topics=nowhere, max_wait_ms=0)
    scene.fetch("out of shape", "A", 5, max_records=0, acknowledgements=[(5, 4, [1])])
    scene.fetch("not in order", "A", 6, max_records=0, acknowledgements=[(5, 9, [1]), (0, 4, [1])])
    scene.fetch("a type that is none", "A", 7, max_records=0, acknowledgements=[(0, 9, [5])])
    scene.fetch("renewal without leave", "A", 8, max_records=0, acknowledgements=[(0, 9, [4])])
    scene.fetch("a batch that has not been acquired", "A", 9, max_records=0, acknowledgements=[(20, 29, [1])])
    scene.fetch("half of them", "A", 10, max_records=0, acknowledgements=[(0, 4, [1]), (5, 9, [2])])
    scene.fetch("the other half again", "A", 11, topics=[])
    scene.fetch("the last ones", "A", -1, acknowledgements=[(5, 9, [3])])


def wrong_acknowledgements(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "wrong-acks")
    scene.begin()
    scene.acknowledge("no group", "A", 1, (0, 9, [1]), group_id=None)
    scene.acknowledge("no member", "A", 1, (0, 9, [1]), member_id=None)
    scene.acknowledge("an empty member", "", 1, (0, 9, [1]))
    scene.acknowledge("a long member", "x" * 37, 1, (0, 9, [1]))
    scene.acknowledge("the end of no session", "A", -1, (0, 9, [1]))
    scene.fetch("all", "A", 0)
    epoch = itertools.count(1)
    for label, topic_id, partition in (
        ("an unknown topic", b"\x07" * 16, 0),
        ("the zero topic id", ZERO_UUID, 0),
        ("an unknown partition", scene.topic_id, 7),
        ("a negative partition", scene.topic_id, -1),
    ):
        batch = AcknowledgementBatch(first_offset=0, last_offset=9, acknowledge_types=[1])
        ack_partition = AcknowledgePartition(partition_index=partition, acknowledgement_batches=[batch])
        scene.acknowledge(
            label, "A", next(epoch), topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[ack_partition])]
        )
    shapes: dict[str, list[Batch]] = {
        "not in order": [(5, 9, [1]), (0, 4, [1])],
        "touching": [(0, 4, [1]), (4, 9, [1])],
        "overlapping": [(0, 6, [1]), (4, 9, [1])],
        "negative": [(-5, -1, [1])],
        "from below": [(-5, 9, [1])],
        "renewal without leave": [(0, 9, [4])],
        "a negative type": [(0, 9, [-1])],
        "types for one of two": [(0, 1, [1, 7])],
        "before and beyond": [(0, 4, [1]), (20, 29, [1])],
        "gaps": [(0, 2, [0])],
        "gaps again": [(0, 2, [0])],
        "the rest but one": [(3, 8, [1])],
        "the last one and one more": [(9, 10, [1])],
    }
    for label, batches in shapes.items():
        scene.acknowledge(label, "A", next(epoch), *batches)
    scene.acknowledge("the last one", "A", next(epoch), (9, 9, [3]))
    scene.acknowledge("nothing is in flight", "A", next(epoch), (9, 9, [1]))
    scene.acknowledge("beyond, nothing is in flight", "A", next(epoch), (10, 12, [1]))
    scene.describe_offsets("all are done")


def renewals(talk: Talk, version: int) -> None:
    if version < RENEWAL_SINCE:
        talk.note("renewals", "not in this version")
        return
    scene = ShareScene(talk, version, "renewals")
    scene.begin()
    scene.fetch("all", "A", 0)
    scene.acknowledge("renewed", "A", 1, (0, 9, [4]), is_renew_ack=True)
    scene.acknowledge("renewed and accepted", "A", 2, (0, 4, [4]), (5, 9, [1]), is_renew_ack=True)
    scene.acknowledge("what is accepted", "A", 3, (5, 9, [4]), is_renew_ack=True)
    idle = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    scene.fetch("renewed by a fetch", "A", 4, **idle, acknowledgements=[(0, 4, [4])])
    for limit in ("max_wait_ms", "min_bytes", "max_bytes", "max_records"):
        scene.fetch(f"with {limit}", "A", 5, **(idle | {limit: 1}), acknowledgements=[(0, 4, [4])])
    scene.configure("share.renew.acknowledge.enable", "false")
    time.sleep(0.5)  # Kafka applies a setting a moment after it has confirmed the change.
    scene.acknowledge("not allowed", "A", 5, (0, 4, [4]), is_renew_ack=True)
    scene.acknowledge("of another's", "B", 1, (0, 4, [4]), is_renew_ack=True)


def acquire_modes(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "modes")
    scene.begin()
    scene.produce(10)
    scene.produce(10)
    mode = {"share_acquire_mode": RECORD_LIMIT} if version >= MODES_SINCE else {}
    scene.fetch("five", "A", 0, max_records=5, **mode)
    scene.fetch("batches of four", "B", 0, max_records=15, batch_size=4)
    scene.fetch("batches of none", "C", 0, batch_size=0)
    scene.acknowledge("A gives back", "A", 1, (0, 4, [2]))
    scene.fetch("two of them", "A", 2, max_records=2, topics=[], **mode)
    scene.fetch("negative", "A", 3, max_records=-1, topics=[], max_wait_ms=300)
    if version >= MODES_SINCE:
        scene.fetch("a mode that is none", "D", 0, share_acquire_mode=2)


def deliveries(talk: Talk, version: int) -> None:
    """Acquires and releases the records repeatedly until they reach the delivery limit."""
    scene = ShareScene(talk, version, "deliveries")
    scene.begin()
    scene.configure("share.delivery.count.limit", "3")
    time.sleep(0.5)  # Kafka applies a setting a moment after it has confirmed the change.
    scene.fetch("the first time", "A", 0)
    for epoch in range(1, 30, 2):
        scene.acknowledge("released", "A", epoch, (0, 9, [2]))
        taken = scene.fetch("and taken", "A", epoch + 1, topics=[], max_wait_ms=300)
        if not taken.responses:
            break
    scene.describe_offsets("all are done")


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    heartbeats: HEARTBEAT,
    subscriptions: HEARTBEAT,
    described: DESCRIBE,
    sessions: FETCH,
    wrong_fetches: FETCH,
    acquire_modes: FETCH,
    deliveries: FETCH,
    two_members: ACKNOWLEDGE,
    wrong_acknowledgements: ACKNOWLEDGE,
    renewals: ACKNOWLEDGE,
}
