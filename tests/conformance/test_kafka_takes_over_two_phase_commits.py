"""Tests a downgrade to Apache Kafka, which does not support KeepPreparedTxn, when the directory contains transactions
in doubt.

Kafka keeps these transactions, because their timeout never expires. It lets a client end them with the producer id and
epoch that wrote them, but does not know the producer id and epoch that a recovery received; see
docs/using-transactions.md.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from odradek.broker.transactions.entry import LAST_USABLE_EPOCH
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.clients.transactions import READERS
from tests.support.broker_process import EMULATED, Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka
from tests.support.two_phase import Pair, TwoPhaseClient
from tests.support.wire import Wire

pytestmark = needs_kafka

E = ErrorCode
NEVER_MS = 2**31 - 1
OURS: dict[str, object] = {"transaction.two.phase.commit.enable": "true", "transaction.state.log.num.partitions": 4}
# Kafka looks for expired transactions continuously, so the test would notice an abort.
KAFKAS: dict[str, object] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


@contextmanager
def client(broker: Broker) -> Iterator[TwoPhaseClient]:
    with Wire(broker.bootstrap) as wire:
        yield TwoPhaseClient(wire)


def read(broker: Broker, topic: str) -> list[bytes]:
    return READERS["confluent-kafka"](broker.bootstrap, topic, committed=True)


def is_complete(client: TwoPhaseClient, transactional_id: str) -> bool:
    return client.describe(transactional_id).transaction_state.startswith("Complete")


@pytest.mark.parametrize("stop", [Broker.stop, Broker.kill9], ids=["stopped", "killed"])
@pytest.mark.parametrize("release", EMULATED)
def test_kafka_keeps_prepared_transactions_and_ends_them_with_their_original_id_and_epoch(
    tmp_path: Path, release: str, stop: Callable[[Broker], None]
) -> None:
    names = ["open-commit", "open-abort", "kept-commit", "kept-abort", "kept-last", "kept-new", "kept-asked"]
    pairs: dict[str, Pair] = {}
    kept: dict[str, Pair] = {}
    with BrokerProcess(tmp_path / "data", OURS, emulate=EMULATED[release]):
        # This formats the directory at the levels of that release. A broker that emulates 4.3 does not offer
        # KeepPreparedTxn.
        pass
    ours = BrokerProcess(tmp_path / "data", OURS)
    with ours, client(ours) as on_ours:
        for name in [*names, "ordinary"]:
            create_topic(ours.bootstrap, name, exact=True)
        on_ours.use_up_epochs("kept-last", LAST_USABLE_EPOCH - 1)
        for name in names:
            pairs[name] = on_ours.open(name, name)
            if name.startswith("kept"):
                kept[name] = on_ours.keep(name)
        assert pairs["kept-last"][1] == LAST_USABLE_EPOCH
        assert kept["kept-last"][0] != pairs["kept-last"][0], "its epochs were used up"
        stop(ours)

    kafka = KafkaProcess(tmp_path / "data", KAFKAS, version=release)
    with kafka, client(kafka) as on_kafka:
        on_kafka.open("ordinary", "ordinary", two_phase=False, timeout_ms=1)
        wait_for("an abort by time", lambda: on_kafka.describe("ordinary").transaction_state == "CompleteAbort")
        for name in names:
            found = on_kafka.describe(name)
            assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", NEVER_MS), name
            assert (found.producer_id, found.producer_epoch) == pairs[name], name
        for name in names[:5]:
            code = on_kafka.end(name, pairs[name], commit="abort" not in name)
            assert code is E.NONE, name
            # Kafka responds once the decision is stored and writes the markers afterwards.
            wait_for("the markers", partial(is_complete, on_kafka, name))
            assert read(kafka, name) == ([] if "abort" in name else [b"prepared"]), name
        # Kafka does not know the producer id and epoch that the recovery received. A new owner of the id aborts the
        # transaction without a warning.
        assert on_kafka.end("kept-asked", kept["kept-asked"], commit=True) is E.PRODUCER_FENCED
        assert on_kafka.init("kept-new", two_phase=False).error_code == 0
        assert on_kafka.describe("kept-new").transaction_state == "Empty"
        assert read(kafka, "kept-new") == []
        kafka.stop()

    # The transaction that Kafka refused to end is unchanged.
    with ours, client(ours) as on_ours:
        assert on_ours.end("kept-asked", kept["kept-asked"], commit=True) is E.NONE
        assert read(ours, "kept-asked") == [b"prepared"]
