"""A transactional producer for scripts. Each step sends one request, recorded or unrecorded."""

import time
from typing import Any

from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.records_script import batch

# Versions of requests that only prepare a comparison. They predate the second part of KIP-890.
INIT, ADD, END, PRODUCE = 4, 3, 4, 11
PATIENCE_S = 60.0
# Error codes: the coordinator is loading, unavailable, on another broker, or still busy with this transactional id.
NOT_YET = {14, 15, 16, 51}
GROUP, TRANSACTION = 0, 1


class Client:
    """A producer with one transactional id. `producer_id` and `epoch` are the latest that the broker returned."""

    def __init__(self, talk: Talk, transactional_id: str, *, version: int = END) -> None:
        """Creates a producer that sends EndTxn at this version. transaction.version 2 requires version 5."""
        self.talk, self.id, self._end_version = talk, transactional_id, version
        self.producer_id, self.epoch, self.sequences = -1, -1, dict[tuple[str, int], int]()

    def init(self, **more: Any) -> "Client":
        """Sends unrecorded InitProducerId requests until one succeeds. This aborts an open transaction."""
        request = InitProducerIdRequest(transactional_id=self.id, **({"transaction_timeout_ms": 60_000} | more))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # This request creates the topic __transaction_state.
            self.talk.quietly(FindCoordinatorRequest(key=self.id, key_type=TRANSACTION), 3)
            answer = self.talk.quietly(request, INIT)
            if answer.error_code == 0:
                break
            assert answer.error_code in NOT_YET, answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)
        self.note(answer)
        return self

    def note(self, answer: Any) -> None:
        """Stores the producer id and epoch from a response to InitProducerId or EndTxn v5."""
        if answer is not None and answer.error_code == 0 and answer.producer_id != -1:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    @property
    def pair(self) -> dict[str, Any]:
        return {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add_request(self, *topics: AddPartitionsToTxnTopic, version: int = ADD, **more: Any) -> Any:
        """Returns a request that adds partitions. `more` overrides the transaction's fields."""
        fields = self.pair | more
        if version >= 4:
            transaction = AddPartitionsToTxnTransaction(**(fields | {"topics": list(topics)}))
            return AddPartitionsToTxnRequest(transactions=[transaction])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=fields["transactional_id"],
            v3_and_below_producer_id=fields["producer_id"],
            v3_and_below_producer_epoch=fields["producer_epoch"],
            v3_and_below_topics=list(topics),
        )

    def begin(self, topic: str, *partitions: int) -> "Client":
        """Adds partitions to the transaction, as clients of the older protocol do. The request is not recorded."""
        self.talk.quietly(self.add_request(partitions_of(topic, *(partitions or (0,)))), ADD)
        return self

    def begin_offsets(self, group: str) -> "Client":
        self.talk.quietly(AddOffsetsToTxnRequest(group_id=group, **self.pair), ADD)
        return self

    def end_request(self, *, commit: bool = True, **more: Any) -> EndTxnRequest:
        return EndTxnRequest(**({"committed": commit} | self.pair | more))

    def end(self, *, commit: bool = True) -> "Client":
        """Ends the transaction with an unrecorded request and waits until the markers are written."""
        self.note_end(self.talk.quietly(self.end_request(commit=commit), self._end_version))
        return self

    def note_end(self, answer: Any) -> None:
        """Stores the result of an EndTxn response and waits until the transaction has ended, because Kafka responds
        earlier."""
        self.note(answer)
        self.settle()

    def settle(self) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        deadline = time.monotonic() + PATIENCE_S
        while self.talk.quietly(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
            assert time.monotonic() < deadline, f"{self.id} does not end"
            time.sleep(0.01)
        time.sleep(0.002)  # If two markers had the same timestamp, either of them could count as the newer one.

    def records(self, topic: str, *values: bytes, partition: int = 0, **more: Any) -> bytes:
        """Returns this producer's next batch for a partition."""
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
        return batch(*values, **({**fields, "is_transactional": True} | more))

    def produce_request(
        self, topic: str, records: bytes, *, partition: int = 0, topic_id: bytes | None = None, **more: Any
    ) -> ProduceRequest:
        data = [PartitionProduceData(index=partition, records=records)]
        topics = [
            TopicProduceData(topic_id=topic_id, partition_data=data)
            if topic_id is not None
            else TopicProduceData(name=topic, partition_data=data)
        ]
        fields: dict[str, Any] = {"transactional_id": self.id, "acks": -1, "timeout_ms": 10_000} | more
        return ProduceRequest(topic_data=topics, **fields)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> "Client":
        """Sends an unrecorded Produce request. The partition must already be in the transaction."""
        request = self.produce_request(topic, self.records(topic, *values, partition=partition), partition=partition)
        answer = self.talk.quietly(request, PRODUCE)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        return self


def partitions_of(topic: str, *partitions: int) -> AddPartitionsToTxnTopic:
    return AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
