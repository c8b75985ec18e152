"""A script that sends DescribeQuorum for the metadata log, which has a single voter, and for other topics and
partitions."""

from collections.abc import Callable

from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from tests.conformance.differential.conversation import Talk

METADATA = "__cluster_metadata"


def describe_quorum(talk: Talk, version: int) -> None:
    def ask(label: str, *topics: tuple[str, list[int]]) -> None:
        request_topics = [
            TopicData(topic_name=topic, partitions=[PartitionData(partition_index=index) for index in indexes])
            for topic, indexes in topics
        ]
        talk.ask(label, DescribeQuorumRequest(topics=request_topics), version)

    ask("the metadata log", (METADATA, [0]))
    ask("another partition", (METADATA, [1]))
    ask("two partitions", (METADATA, [0, 1]))
    ask("another topic", ("nobody-made-this", [0]))
    ask("two topics", (METADATA, [0]), ("nobody-made-this", [0]))
    ask("no partitions", (METADATA, []))
    ask("no topics")


SCRIPTS: dict[Callable[[Talk, int], None], int] = {describe_quorum: 55}
