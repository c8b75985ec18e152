"""A driver of `odradek judge --suite` with a small streams application that builds its requests itself.

The first argument is `nothing`, or the way in which the application breaks a rule of the STG family: `closes silently`,
`commits nothing` or `ignores statuses`.
"""

from __future__ import annotations

import json
import os
import sys
import time

from odradek.client.common.values import TopicPartition
from odradek.client.sync import Consumer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.streams_group_heartbeat_request import Subtopology
from tests.clients.streams_members import StreamsMember
from tests.support.wire import Wire

BOOTSTRAP, GROUP, CLIENT_ID = os.environ["ODRADEK_BOOTSTRAP"], os.environ["ODRADEK_GROUP"], "judged"
COMMIT_VERSION = FETCH_VERSION = 9
MISSING_SOURCE_TOPICS = 1
HEARTBEAT_S = 0.5


class Application:
    """A streams application with one subtopology that reads one topic. It commits a partition's offset when it gives up
    the partition's task, and when it closes."""

    def __init__(self, topic: str, breaks: str) -> None:
        self._topic = topic
        self._breaks = breaks
        self._wire = Wire(BOOTSTRAP, CLIENT_ID)
        self._wire.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
        reads = (Subtopology(subtopology_id="0", source_topics=[topic]),)
        name = f"member-{os.getpid()}"
        instance = os.environ.get("ODRADEK_GROUP_INSTANCE_ID")
        self._member = StreamsMember(self._wire, GROUP, name, topology=reads, process=name, instance_id=instance)
        self._consumer = Consumer(bootstrap_servers=BOOTSTRAP, client_id=CLIENT_ID)
        self._consumer.start()
        self._positions: dict[int, int] = {}  # by partition: the next offset to read
        self._next_beat_s = time.monotonic() + HEARTBEAT_S
        self._member.join()
        self._follow()

    def poll(self, timeout_ms: int) -> dict[str, object]:
        until_s = time.monotonic() + timeout_ms / 1000
        values: list[str] = []
        while not values and time.monotonic() < until_s:
            if time.monotonic() >= self._next_beat_s:
                self._next_beat_s = time.monotonic() + HEARTBEAT_S
                self._member.beat()
                self._follow()
            if not self._positions:
                time.sleep(HEARTBEAT_S / 10)
                continue
            for records in self._consumer.getmany(timeout_ms=100).values():
                for record in records:
                    self._positions[record.partition] = record.offset + 1
                    values.append((record.value or b"").decode())
        report: dict[str, object] = {"records": values}
        if MISSING_SOURCE_TOPICS in self._member.statuses and self._breaks != "ignores statuses":
            report["error"] = f"the source topic {self._topic} is missing"
        return report

    def close(self) -> None:
        for partition in self._positions:
            self._commit(partition)
        if self._breaks != "closes silently":
            self._member.leave()
        self._consumer.close()

    def _follow(self) -> None:
        """Starts and stops tasks as the last response requires. The next heartbeat reports the changed tasks."""
        partitions = set(self._member.tasks.get("0", []))
        if partitions == self._positions.keys():
            return
        for partition in self._positions.keys() - partitions:
            self._commit(partition)
            del self._positions[partition]
        started = {partition: self._committed(partition) for partition in partitions - self._positions.keys()}
        self._positions |= started
        self._consumer.assign([TopicPartition(self._topic, partition) for partition in self._positions])
        for partition, offset in started.items():
            self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def _commit(self, partition: int) -> None:
        if self._breaks == "commits nothing":
            return
        stored = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=self._positions[partition], committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._member.epoch,
            member_id=self._member.member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[stored])],
        )
        answer = self._wire.ask(request, COMMIT_VERSION, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE.value, answer

    def _committed(self, partition: int) -> int:
        topic = OffsetFetchRequestTopics(name=self._topic, partition_indexes=[partition])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
        answer = self._wire.ask(request, FETCH_VERSION, OffsetFetchResponse)
        return max(answer.groups[0].topics[0].partitions[0].committed_offset, 0)


def main() -> None:
    breaks = sys.argv[1]
    application: Application | None = None
    for line in sys.stdin:
        verb, *words = line.split()
        report: dict[str, object] = {}
        if verb == "stream":
            application = Application(words[0], breaks)
        elif verb == "poll" and application is not None:
            report = application.poll(int(words[0]))
        else:
            report = {"unimplemented": True}
        print(json.dumps(report), flush=True)
    if application is not None:
        application.close()


main()
