"""Scripts for share group offsets: DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets,
including errors.

The scripts play scenarios 32 to 35 and the rules of docs/spec/share-groups.md#s2-8.
"""

from collections.abc import Callable

from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequest
from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.share_group_scene import Offsets, ShareScene, other_groups

DESCRIBE, ALTER, DELETE = 90, 91, 92


def described(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "offsets")
    others = other_groups(scene)
    for label, group in others.items():
        scene.describe_offsets(f"{label}, all", groups=(group,), version=version)
        scene.describe_offsets(f"{label}, one", {scene.topic: [0]}, groups=(group,), version=version)
    talk.ask("no groups", DescribeShareGroupOffsetsRequest(groups=[]), version)
    scene.begin()
    every_kind: dict[str, dict[str, list[int]] | None] = {
        "all": None,
        "none": {},
        "one": {scene.topic: [0]},
        "a negative partition": {scene.topic: [0, -1]},
        "no such topic": {"nope": [0], "bad name!": [0]},
        "no partitions": {scene.topic: []},
        "a partition twice": {scene.topic: [0, 0]},
    }
    for label, topics in every_kind.items():
        scene.describe_offsets(f"undecided, {label}", topics, version=version)
    scene.fetch("A takes all", "A", 0)
    scene.describe_offsets("acquired", version=version)
    scene.acknowledge("A accepts five", "A", 1, (0, 4, [1]))
    scene.describe_offsets("five of ten", version=version)
    scene.acknowledge("A accepts the rest", "A", 2, (5, 9, [1]))
    scene.describe_offsets("ten of ten", version=version)
    scene.produce(3)
    for label, topics in every_kind.items():
        scene.describe_offsets(f"three more, {label}", topics, version=version)
    scene.describe_offsets("two groups", {scene.topic: [0]}, groups=(scene.group, "nobody"), version=version)
    if version > 0:  # Kafka takes a long time to respond, so version 0 is left out.
        scene.describe_offsets("no such partition", {scene.topic: [0, 7]}, version=version)
    scene.describe_offsets("a group twice", groups=(scene.group, scene.group), version=version)


def altered(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "altered")
    others = other_groups(scene)
    for label in ("a consumer group", "a classic group", "no group id"):
        scene.alter_offsets(label, (scene.topic, {0: 3}), group=others[label])
    scene.begin()
    scene.alter_offsets("with a member", (scene.topic, {0: 3}))
    scene.alter_offsets("with a member, nothing", group=scene.group)
    scene.leave()
    every_kind: dict[str, list[tuple[str, Offsets]]] = {
        "one": [(scene.topic, {0: 3})],
        "no topics": [],
        "no partitions": [(scene.topic, {})],
        "no such topic": [("nope", {0: 1})],
        "an impossible topic": [("bad name!", {0: 1})],
        "no such partition": [(scene.topic, {0: 4, 7: 1})],
        "a negative partition": [(scene.topic, {0: 2, -1: 1})],
        "known and unknown": [("nope", {0: 1}), (scene.topic, {0: 5})],
        "a negative offset": [(scene.topic, {0: -2})],
        "undecided": [(scene.topic, {0: -1})],
        "beyond the end": [(scene.topic, {0: 700})],
        "back": [(scene.topic, {0: 7})],
        "the same": [(scene.topic, {0: 7})],
    }
    for label, topics in every_kind.items():
        scene.alter_offsets(label, *topics)
        scene.describe_offsets(f"after {label}")
    scene.begin("B")
    scene.fetch("from there on", "B", 0)


def altered_before_it_is_there(talk: Talk, version: int) -> None:
    """Alters an unknown group's offsets, which creates the group."""
    scene = ShareScene(talk, version, "altered-first")
    scene.wait_until_altered({0: 3})
    scene.describe_offsets("made")
    talk.ask("made", ShareGroupDescribeRequest(group_ids=[scene.group]), 1)
    talk.ask("deleted", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    scene.describe_offsets("deleted")


def deleted(talk: Talk, version: int) -> None:
    scene = ShareScene(talk, version, "deleted")
    others = other_groups(scene)
    for label, group in others.items():
        scene.delete_offsets(label, scene.topic, group=group)
        scene.delete_offsets(f"{label}, nothing", group=group)
    scene.begin()
    scene.delete_offsets("with a member", scene.topic)
    scene.leave()
    scene.delete_offsets("no topics")
    scene.delete_offsets("no such topic", "nope", "bad name!")
    scene.delete_offsets("known and unknown", "nope", scene.topic)
    scene.describe_offsets("deleted")
    scene.delete_offsets("again", scene.topic)
    scene.alter_offsets("given anew", (scene.topic, {0: 2}))
    scene.describe_offsets("given anew")
    scene.delete_offsets("once more", scene.topic)
    scene.delete_offsets("a topic twice", scene.topic, scene.topic)
    talk.ask("still there", ShareGroupDescribeRequest(group_ids=[scene.group]), 1)
    talk.ask("the group goes", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    scene.delete_offsets("gone", scene.topic)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    described: DESCRIBE,
    altered: ALTER,
    altered_before_it_is_there: ALTER,
    deleted: DELETE,
}
