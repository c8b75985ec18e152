"""Scripts for ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments and AlterReplicaLogDirs. With a
single broker these requests change nothing."""

from collections.abc import Callable

from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.conformance.differential.conversation import Talk

TIMEOUT_MS = 20_000
PREFERRED, UNCLEAN = 0, 1


def elect_leaders(talk: Talk, version: int) -> None:
    name = f"el{version}"
    talk.make_topic(name, 2)

    def ask(label: str, *partitions_of_topics: tuple[str, list[int]], election: int = PREFERRED) -> None:
        topics = [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in partitions_of_topics]
        request = ElectLeadersRequest(election_type=election, topic_partitions=topics, timeout_ms=TIMEOUT_MS)
        talk.ask(label, request, version)

    for election in (PREFERRED, UNCLEAN):
        ask(f"none, type {election}", election=election)
        ask(f"led, type {election}", (name, [0, 1]), election=election)
        ask(f"no partitions, type {election}", (name, []), election=election)
        ask(f"unknown, type {election}", (name, [1, 2, -1]), ("no-such", [0]), ("", [0]), election=election)
    ask("twice", (name, [0, 0]))
    for election in (2, -1):
        ask(f"none, type {election}", election=election)
        ask(f"type {election}", (name, [0]), ("no-such", [0]), election=election)


def elect_all_leaders(talk: Talk, version: int) -> None:
    """Elects the leaders of all topics. Compares only the results for this script's topics, because the others belong
    to other scripts."""
    talk.make_topic(f"ea{version}", 2)
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS)
    results = talk.quietly(request, version).replica_election_results
    talk.note("this topic", [each.topic for each in results if each.topic == f"ea{version}"])
    talk.note("partitions", [each.partition_result for each in results if each.partition_result])


def alter_partition_reassignments(talk: Talk, version: int) -> None:
    name = f"ar{version}"
    talk.make_topic(name, 2)

    def ask(label: str, *wishes: tuple[str, int, list[int] | None], factor_may_change: bool = True) -> None:
        topics: dict[str, ReassignableTopic] = {}
        for topic, index, replicas in wishes:
            named = topics.setdefault(topic, ReassignableTopic(name=topic))
            named.partitions.append(ReassignablePartition(partition_index=index, replicas=replicas))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            allow_replication_factor_change=factor_may_change,
            topics=list(topics.values()),
        )
        talk.ask(label, request, version)

    for factor_may_change in (True, False):
        kind = "" if factor_may_change else ", same factor"
        ask(f"none{kind}", factor_may_change=factor_may_change)
        ask(f"here{kind}", (name, 0, [1]), (name, 1, [1]), factor_may_change=factor_may_change)
        ask(f"cancel{kind}", (name, 0, None), ("no-such", 0, None), factor_may_change=factor_may_change)
        for replicas in ([], [2], [1, 1], [1, 2], [2, 1], [-1]):
            ask(f"to {replicas}{kind}", (name, 0, replicas), factor_may_change=factor_may_change)
    ask("unknown", (name, 2, [1]), (name, -1, [1]), ("no-such", 0, [1]), ("", 0, [1]), (name, 1, [1]))
    ask("twice", (name, 0, [1]), (name, 0, [2]))
    no_partitions = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name)], timeout_ms=TIMEOUT_MS)
    talk.ask("no partitions", no_partitions, version)


def list_partition_reassignments(talk: Talk, version: int) -> None:
    name = f"lr{version}"
    talk.make_topic(name, 2)

    def ask(label: str, *partitions_of_topics: tuple[str, list[int]]) -> None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in partitions_of_topics
        ]
        talk.ask(label, ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics), version)

    talk.ask("all", ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None), version)
    ask("none")
    ask("some", (name, [0, 1]), (name, []), (name, [7]), ("no-such", [0]))


def alter_replica_log_dirs(talk: Talk, version: int) -> None:
    name = f"staying-{version}"
    talk.make_topic(name, 2)

    def ask(label: str, path: str, *topics: tuple[str, list[int]]) -> None:
        moved = [AlterReplicaLogDirTopic(name=topic, partitions=partitions) for topic, partitions in topics]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=moved)])
        talk.ask(label, request, version)

    here = talk.place.log_dir
    ask("where it is", here, (name, [0, 1]))
    ask("where it is, with a slash", here + "/", (name, [0]))
    ask("where it is, roundabout", here + "/../" + here.rpartition("/")[2], (name, [0]))
    ask("to no directory of the broker", "/no-such-dir", (name, [0]))
    ask("to a relative path", "no-such-dir", (name, [0]))
    ask("to nowhere", "", (name, [0]))
    ask("an unknown partition", here, (name, [1, 9]))
    ask("an unknown topic", here, ("nobody-made-this", [0]))
    ask("an unknown topic to no directory", "/no-such-dir", ("nobody-made-this", [0]))
    ask("an invalid name", here, ("a b", [0]))
    ask("the same twice", here, (name, [0, 0]))
    ask("the topic twice", here, (name, [0]), (name, [1]))
    ask("no topics", here)
    talk.ask("nothing", AlterReplicaLogDirsRequest(dirs=[]), version)
    both = [
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=[0])])
        for path in (here, "/no-such-dir")
    ]
    talk.ask("one partition to two places", AlterReplicaLogDirsRequest(dirs=both), version)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    alter_replica_log_dirs: 34,
    elect_leaders: 43,
    elect_all_leaders: 43,
    alter_partition_reassignments: 45,
    list_partition_reassignments: 46,
}
