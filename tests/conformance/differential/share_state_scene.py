"""Share partitions for one script, and the requests about them that partition leaders and group coordinators send (API
keys 83 to 87).

The `where` parameters of a request override the scene's partitions, topic id and group.
"""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.messages import delete_share_group_state_request as deletion
from odradek.protocol.messages import initialize_share_group_state_request as initialization
from odradek.protocol.messages import read_share_group_state_request as reading
from odradek.protocol.messages import read_share_group_state_summary_request as summary
from odradek.protocol.messages import write_share_group_state_request as writing
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.struct import Message
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.groups_script import wait_for_coordinator

SHARE = 2  # key type of FindCoordinator
LATEST = {83: 0, 84: 0, 85: 1, 86: 0, 87: 1}
OF_COLONS = ":a:b:"
PATIENCE_S = 60
Batch = tuple[int, int, int, int]  # first offset, last offset, delivery state, delivery count


def wait_for_share_coordinator(talk: Talk) -> None:
    """Waits for a share coordinator. The first request for a coordinator makes the broker create __share_group_state,
    which takes a moment."""
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[f"g:{'A' * 22}:0"])
    while talk.quietly(request, 6).coordinators[0].error_code:
        time.sleep(0.05)


class StateScene:
    """A topic with two partitions, and a group. Requests with API key `key` are sent at `version`, all others at their
    latest version."""

    def __init__(self, talk: Talk, name: str, key: int, version: int) -> None:
        wait_for_coordinator(talk)
        wait_for_share_coordinator(talk)
        self.talk = talk
        self._versions = LATEST | {key: version}
        self.group = f"state-{name}-{version}"
        self.topic = f"{self.group}-t"
        self.topic_id = talk.make_topic(self.topic, 2)
        self.wait_until_coordinators_know(is_there=True)

    def wait_until_coordinators_know(self, *, is_there: bool) -> None:
        """Waits until the coordinators know that the topic exists, or that it no longer exists. Each of Kafka's
        coordinators learns about it separately, a moment after the topic's creation or deletion."""
        partitions = [summary.PartitionData(partition=index) for index in (0, 1)]
        topics = [summary.ReadStateSummaryData(topic_id=self.topic_id, partitions=partitions)]
        deadline = time.monotonic() + PATIENCE_S
        for group in (self.group, OF_COLONS):
            request = summary.ReadShareGroupStateSummaryRequest(group_id=group, topics=topics)
            while any(
                bool(each.error_code) is is_there for each in self.talk.quietly(request, 0).results[0].partitions
            ):
                assert time.monotonic() < deadline, f"{self.topic}: is_there={is_there} is not known"
                time.sleep(0.02)

    def initialize(self, label: str, epoch: int, offset: int, **where: Any) -> None:
        self._ask(
            label,
            initialization.InitializeShareGroupStateRequest,
            initialization.InitializeStateData,
            lambda index: initialization.PartitionData(partition=index, state_epoch=epoch, start_offset=offset),
            where,
        )

    def read(self, label: str, leader_epoch: int, **where: Any) -> None:
        self._ask(
            label,
            reading.ReadShareGroupStateRequest,
            reading.ReadStateData,
            lambda index: reading.PartitionData(partition=index, leader_epoch=leader_epoch),
            where,
        )

    def write(self, label: str, epoch: int, leader_epoch: int, offset: int, *batches: Batch, **where: Any) -> None:
        stated = [
            writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ]
        more = {"delivery_complete_count": where.pop("complete")} if "complete" in where else {}
        self._ask(
            label,
            writing.WriteShareGroupStateRequest,
            writing.WriteStateData,
            lambda index: writing.PartitionData(
                partition=index,
                state_epoch=epoch,
                leader_epoch=leader_epoch,
                start_offset=offset,
                state_batches=stated,
                **more,
            ),
            where,
        )

    def delete(self, label: str, **where: Any) -> None:
        self._ask(
            label,
            deletion.DeleteShareGroupStateRequest,
            deletion.DeleteStateData,
            lambda index: deletion.PartitionData(partition=index),
            where,
        )

    def summarize(self, label: str, leader_epoch: int, **where: Any) -> None:
        self._ask(
            label,
            summary.ReadShareGroupStateSummaryRequest,
            summary.ReadStateSummaryData,
            lambda index: summary.PartitionData(partition=index, leader_epoch=leader_epoch),
            where,
        )

    def stored(self, label: str) -> None:
        """Reads the complete stored state of partition 0."""
        self.read(f"{label}, read", 0)
        self.summarize(f"{label}, summary", 0)

    def nowhere(self, ask: Callable[..., None], *values: int) -> None:
        """Repeats the request with unknown and impossible share partitions, with the same partition twice, and without
        any partition."""
        ask("an unknown topic", *values, topic=b"\x07" * 16)
        ask("the zero topic id", *values, topic=bytes(16))
        ask("no group id", *values, group="")
        ask("a group id of colons", *values, group=OF_COLONS)
        ask("an unknown partition", *values, partitions=(7,))
        ask("a negative partition", *values, partitions=(-1,))
        ask("known and unknown", *values, partitions=(0, 7, -1))
        ask("a partition twice", *values, partitions=(0, 0))
        ask("no partitions", *values, partitions=())

    def _ask(
        self,
        label: str,
        request_type: Callable[..., Message],
        topic_type: Callable[..., Any],
        partition_of: Callable[[int], Any],
        where: dict[str, Any],
    ) -> None:
        partitions = [partition_of(index) for index in where.get("partitions", (0,))]
        topic = topic_type(topic_id=where.get("topic", self.topic_id), partitions=partitions)
        request = request_type(group_id=where.get("group", self.group), topics=[topic])
        self.talk.ask(label, request, self._versions[request.API_KEY])
