"""A transactional producer for scripts, which does only what it is told: each step is one request, recorded or not."""

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

INIT, ADD, END, PRODUCE = 4, 3, 4, 11  # the versions of what only prepares: the protocol before KIP-890's second part
PATIENCE_S = 60.0
NOT_YET = {14, 15, 16, 51}  # the coordinator loads, is not there yet, or is busy with this id
GROUP, TRANSACTION = 0, 1


class Client:
    """One transactional id. `producer_id` and `epoch` are what the broker told last."""

    def __init__(self, talk: Talk, transactional_id: str, *, version: int = END) -> None:
        """version   of EndTxn: 5 speaks for transaction.version 2"""
        self.talk, self.id, self._end_version = talk, transactional_id, version
        self.producer_id, self.epoch, self.sequences = -1, -1, dict[tuple[str, int], int]()

    def init(self, **more: Any) -> "Client":
        """Quietly, until it is granted; whatever was open is aborted."""
        request = InitProducerIdRequest(transactional_id=self.id, **({"transaction_timeout_ms": 60_000} | more))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.talk.quietly(FindCoordinatorRequest(key=self.id, key_type=TRANSACTION), 3)  # makes the topic
            answer = self.talk.quietly(request, INIT)
            if answer.error_code == 0:
                break
            assert answer.error_code in NOT_YET, answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)
        self.note(answer)
        return self

    def note(self, answer: Any) -> None:
        """The pair that an answer of InitProducerId or of EndTxn v5 tells."""
        if answer is not None and answer.error_code == 0 and answer.producer_id != -1:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    @property
    def pair(self) -> dict[str, Any]:
        return {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add_request(self, *topics: AddPartitionsToTxnTopic, version: int = ADD, **more: Any) -> Any:
        """`more` overrides fields of the transaction."""
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
        """Quietly, as clients of the older protocol do it."""
        self.talk.quietly(self.add_request(partitions_of(topic, *(partitions or (0,)))), ADD)
        return self

    def begin_offsets(self, group: str) -> "Client":
        self.talk.quietly(AddOffsetsToTxnRequest(group_id=group, **self.pair), ADD)
        return self

    def end_request(self, *, commit: bool = True, **more: Any) -> EndTxnRequest:
        return EndTxnRequest(**({"committed": commit} | self.pair | more))

    def end(self, *, commit: bool = True) -> "Client":
        """Quietly, and wait until the markers are written."""
        self.note_end(self.talk.quietly(self.end_request(commit=commit), self._end_version))
        return self

    def note_end(self, answer: Any) -> None:
        """Wait until it is over: Kafka answers before that."""
        self.note(answer)
        self.settle()

    def settle(self) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        deadline = time.monotonic() + PATIENCE_S
        while self.talk.quietly(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
            assert time.monotonic() < deadline, f"{self.id} does not end"
            time.sleep(0.01)
        time.sleep(0.002)  # no two markers of one time: which of them is the newest would be chance

    def records(self, topic: str, *values: bytes, partition: int = 0, **more: Any) -> bytes:
        """The next batch of this producer for a partition."""
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
        """Quietly; the partition has to be part of the transaction."""
        request = self.produce_request(topic, self.records(topic, *values, partition=partition), partition=partition)
        answer = self.talk.quietly(request, PRODUCE)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
        return self


def partitions_of(topic: str, *partitions: int) -> AddPartitionsToTxnTopic:
    return AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
