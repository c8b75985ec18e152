"""Tests that a record whose acknowledgement was staged is delivered exactly as often as the limit allows, however the
staging ends.

This holds whether or not the share partition is loaded. Rule: docs/spec/share-groups.md#s5-8.
"""

from collections.abc import Callable

import pytest

from odradek.protocol.errors import ErrorCode
from tests.support.share_member import Member
from tests.support.txn_share_broker import ACCEPT, RELEASE, Producer, TxnShareBroker

ONE = (0, 0, ACCEPT)
LIMIT = 3
TRANSACTION_TIMEOUT_MS = 60_000


def abort(broker: TxnShareBroker, producer: Producer) -> None:
    assert producer.abort() is ErrorCode.NONE


def time_out(broker: TxnShareBroker, producer: Producer) -> None:
    broker.sleep(TRANSACTION_TIMEOUT_MS + 10_000)


def fence(broker: TxnShareBroker, producer: Producer) -> None:
    broker.producer()


def keep_prepared(broker: TxnShareBroker, producer: Producer) -> None:
    """Leaves the transaction prepared until its locks have expired and its transaction timeout has passed.

    A new producer instance then keeps the transaction and aborts it.
    """
    broker.sleep(TRANSACTION_TIMEOUT_MS + 10_000)
    recovery = broker.producer(two_phase=True, keep=True)
    assert recovery.abort() is ErrorCode.NONE


ENDS = {"abort": abort, "time-out": time_out, "fencing": fence, "keep-prepared": keep_prepared}


def stays(broker: TxnShareBroker, member: Member) -> None:
    """Ends the member's session while another member keeps the share partition loaded."""
    member.fetch(epoch=-1)


def leaves_memory(broker: TxnShareBroker, member: Member) -> None:
    member.disconnect()


def is_killed(broker: TxnShareBroker, member: Member) -> None:
    broker.kill()


GONE = {"session closed": stays, "left memory": leaves_memory, "killed": is_killed}
LATER: dict[str, Callable[[TxnShareBroker], None]] = {
    "nothing": lambda broker: None,
    "another restart": lambda broker: broker.kill(),
}


def delivered(broker: TxnShareBroker, topic: bytes, times: int) -> Member:
    """Delivers the record `times` times. Returns the member that acquired it last."""
    for number in range(1, times):
        one = broker.joined(f"before-{number}")
        assert one.acquire(topic) == [(0, 0, number)]
        assert one.ack_code(topic, (0, 0, RELEASE)) is ErrorCode.NONE
        one.disconnect()
    last = broker.joined("last")
    assert last.acquire(topic) == [(0, 0, times)]
    return last


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_a_record_is_delivered_up_to_its_limit_however_its_staged_acknowledgement_ends(
    count: int, gone: str, end: str, later: str
) -> None:
    broker = TxnShareBroker()
    broker.config = broker.config.__class__(transaction_two_phase_commit_enable=True)
    broker.start_coordinator()
    broker.set_group(share_delivery_count_limit=str(max(LIMIT, count)))
    topic = broker.shared_topic("T", 1)
    member, producer = delivered(broker, topic, count), broker.producer(two_phase=end == "keep-prepared")
    if gone == "session closed":
        broker.joined("beside").fetch(topic)
    assert producer.codes(member, {topic: [ONE]}) == [ErrorCode.NONE]
    broker.set_group(share_delivery_count_limit=str(LIMIT))
    GONE[gone](broker, member)
    ENDS[end](broker, producer)
    LATER[later](broker)
    after = broker.joined("after")
    # The first fetch only starts to load the share partition.
    acquired = after.acquire(topic) or after.acquire(topic)
    assert acquired == ([(0, 0, count + 1)] if count < LIMIT else [])


def test_a_poison_record_whose_workers_die_is_delivered_as_often_as_the_limit_says() -> None:
    broker = TxnShareBroker()
    broker.set_group(share_delivery_count_limit="2")
    topic = broker.shared_topic("T", 1)
    deliveries = 0
    for number in range(6):
        worker, producer = broker.joined(f"w{number}"), broker.producer(f"pay-{number}")
        if not (worker.acquire(topic) or worker.acquire(topic)):
            break
        deliveries += 1
        assert producer.codes(worker, {topic: [ONE]}) == [ErrorCode.NONE]
        worker.disconnect()
        assert producer.abort() is ErrorCode.NONE
    assert deliveries == 2
