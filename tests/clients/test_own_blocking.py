"""Tests the blocking clients' behaviour in a program.

Several threads may share a producer. An error from `send` is stored in its future and raised by the next call. Ctrl-C
interrupts a waiting call. After a fork, the child process can create its own clients. A program that does not close its
clients exits without output on standard error.
"""

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

import odradek.client
from odradek.client import AbortableError, ClientError, IllegalState, RecordMetadata, RetriableError, TopicPartition
from odradek.client.sync import Admin, Consumer, Producer
from odradek.protocol.errors import ErrorCode
from tests.support.oracle import REPOSITORY

FOR_THEM = {"take_ready", "wait_ready", "make_futures_with"}  # Only the blocking clients call these methods.


@pytest.mark.parametrize("blocking", [Producer, Consumer, Admin])
def test_blocking_clients_have_the_parameters_and_docstrings_of_the_asyncio_clients(blocking: type) -> None:
    original = getattr(odradek.client, blocking.__name__)
    assert str(inspect.signature(blocking)) == str(inspect.signature(original))
    for name, method in inspect.getmembers(original, inspect.isfunction):
        if name.startswith("_") or name in FOR_THEM:
            continue
        there = getattr(blocking, name)
        assert not inspect.iscoroutinefunction(there), name
        assert list(inspect.signature(there).parameters) == list(inspect.signature(method).parameters), name
        assert there.__doc__ or not method.__doc__, name


def test_the_future_of_a_sent_record_has_its_partition_and_offset(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        sent = producer.send(topic, b"v", timestamp_ms=77)
        assert sent.result(20) == RecordMetadata(topic, 0, 0, 77)


def test_records_of_one_partition_stay_in_the_order_of_the_calls(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(3_000)]
    assert [future.result(0).offset for future in sent] == list(range(3_000))


def test_threads_may_share_a_producer(bootstrap: str, topic: str) -> None:
    sent: list[Future[RecordMetadata]] = []
    with Producer(bootstrap_servers=bootstrap) as producer:

        def send_some() -> None:
            sent.extend([producer.send(topic, b"v" * 100) for _ in range(2_000)])

        threads = [threading.Thread(target=send_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert sorted(future.result(0).offset or 0 for future in sent) == list(range(8_000))


def test_an_error_of_send_itself_is_in_its_future_and_raised_by_the_next_call(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, max_request_size=1_000) as producer:
        sent = producer.send(topic, b"v" * 2_000)
        with pytest.raises(ClientError) as refused:
            producer.flush()
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert sent.exception(0) is refused.value
        producer.flush()  # The error is reported only once.


def test_a_transaction_is_not_committed_without_a_record_that_was_refused(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id="refuses", max_request_size=1_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"small")
        producer.send(topic, b"v" * 2_000)
        with pytest.raises(AbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"after")
        producer.commit_transaction()
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.getone().value == b"after"


def test_the_constructor_refuses_invalid_settings() -> None:
    with pytest.raises(ValueError, match="acks"):
        Producer(bootstrap_servers="localhost", acks=7)


def test_a_broker_that_is_not_there_is_an_error_of_start() -> None:
    with pytest.raises(RetriableError, match="no broker can be reached"):
        Consumer(bootstrap_servers="127.0.0.1:1").start()


def test_a_call_from_the_loop_s_own_thread_is_refused_instead_of_hanging(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        raised: Future[BaseException] = Future()

        def flush_there(_: object) -> None:
            try:
                producer.flush()
            except BaseException as error:
                raised.set_result(error)

        producer.send(topic, b"v").add_done_callback(flush_there)
        assert isinstance(raised.result(20), IllegalState)


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """Enables SIGINT, which is ignored when a shell runs the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_ends_a_call_that_waits_and_the_consumer_can_be_used_on(bootstrap: str, topic: str) -> None:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            for _ in consumer:
                pass
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"v")
        assert consumer.getone().value == b"v"


def test_after_a_fork_the_child_can_create_its_own_clients(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"parent").result(20)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    producer.flush()
                except IllegalState:
                    with Producer(bootstrap_servers=bootstrap) as its_own:
                        its_own.send(topic, b"child").result(20)
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send(topic, b"parent again").result(20).offset == 2


UNCLOSED = """
import sys
from odradek.client.sync import Consumer, Producer
producer = Producer(bootstrap_servers=sys.argv[1])
producer.start()
producer.send(sys.argv[2], b"v").result(20)
consumer = Consumer(sys.argv[2], bootstrap_servers=sys.argv[1], group_id="left open")
consumer.start()
print(consumer.getone().value.decode())
"""


def test_a_program_that_closes_nothing_ends_all_the_same_and_quietly(bootstrap: str, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, bootstrap, topic],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "v\n", "")
