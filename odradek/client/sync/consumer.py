"""`odradek.client.Consumer` and `odradek.client.ShareConsumer` without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from odradek.client import consumer, share_consumer
from odradek.client.common.errors import IllegalState
from odradek.client.common.values import AcknowledgeType, ConsumerRecord, ShareRecord, TopicPartition
from odradek.client.consuming.handover import OnRebalance as AsyncOnRebalance
from odradek.client.sync.background import Blocking, blocking, on_the_loop, run_in_coroutine, with_parameters_of

OnRebalance = Callable[[list[TopicPartition]], None]


class Consumer(Blocking[consumer.Consumer]):
    """Reads the records of topics in a program without an event loop. `odradek.client.Consumer` describes the settings.

        with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                ...
                consumer.commit()

    A consumer must be started before use and closed afterwards, preferably with `with`. It fetches ahead and sends
    heartbeats in the background. Only one thread at a time may use it.
    """

    @with_parameters_of(consumer.Consumer)
    def __init__(self, make: Callable[[], consumer.Consumer]) -> None:
        super().__init__(make)

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> ConsumerRecord:
        while (record := self._client.take_ready()) is None:
            self._wait(self._client.wait_ready)  # Ctrl-C can interrupt this wait at any moment without losing a record
        return record

    def getone(self) -> ConsumerRecord:
        """Waits for the next record, without a time limit, and returns it. Raises the errors of `getmany`:
        OffsetOutOfRange, AuthorizationFailed, ClientError and IllegalState."""
        return self.__next__()

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribes to these topics, replacing any earlier subscription.

        The next call that returns records joins the group.

        pattern       also subscribes to all topics whose full name matches this RE2 pattern. Requires
                      group_protocol="consumer".
        on_assigned   called with new partitions before any of their records are read; the place to `seek`
        on_revoked    called before partitions are given up; the place to commit offsets or to abort a transaction
        on_lost       called if other members already own the partitions; defaults to `on_revoked`

        The callbacks run during calls that return records, in the calling thread. They may call this consumer.

        Raises IllegalState without `group_id`, after `assign`, and for a pattern with the classic protocol. Raises
        TypeError if `topics` is a single string.
        """
        self._wait(
            partial(
                run_in_coroutine,
                lambda: self._client.subscribe(
                    topics,
                    pattern=pattern,
                    on_assigned=self._in_the_thread(on_assigned),
                    on_revoked=self._in_the_thread(on_revoked),
                    on_lost=self._in_the_thread(on_lost),
                ),
            )
        )

    start = blocking(consumer.Consumer.start)
    close = blocking(consumer.Consumer.close)
    assign = on_the_loop(consumer.Consumer.assign)
    unsubscribe = blocking(consumer.Consumer.unsubscribe)
    assignment = on_the_loop(consumer.Consumer.assignment)
    subscription = on_the_loop(consumer.Consumer.subscription)
    getmany = blocking(consumer.Consumer.getmany)
    getbatches = blocking(consumer.Consumer.getbatches)
    seek = on_the_loop(consumer.Consumer.seek)
    seek_to_beginning = on_the_loop(consumer.Consumer.seek_to_beginning)
    seek_to_end = on_the_loop(consumer.Consumer.seek_to_end)
    position = blocking(consumer.Consumer.position)
    pause = on_the_loop(consumer.Consumer.pause)
    resume = on_the_loop(consumer.Consumer.resume)
    paused = on_the_loop(consumer.Consumer.paused)
    beginning_offsets = blocking(consumer.Consumer.beginning_offsets)
    end_offsets = blocking(consumer.Consumer.end_offsets)
    offsets_for_times = blocking(consumer.Consumer.offsets_for_times)
    commit = blocking(consumer.Consumer.commit)
    committed = blocking(consumer.Consumer.committed)
    group_metadata = on_the_loop(consumer.Consumer.group_metadata)

    def _in_the_thread(self, callback: OnRebalance | None) -> AsyncOnRebalance | None:
        """Returns a coroutine function that runs `callback` in the thread that made the current call, waits for it, and
        raises its error. Returns None if `callback` is None."""
        if callback is None:
            return None

        async def on_rebalance(partitions: list[TopicPartition]) -> None:
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            failures: list[BaseException] = []

            def thread_call() -> None:
                try:
                    callback(partitions)
                except BaseException as error:
                    failures.append(error)
                finally:
                    loop.call_soon_threadsafe(done.set)

            if self._thread_calls is None:
                raise IllegalState("a rebalance callback can run only while a method of the consumer is being called")
            self._thread_calls.put(thread_call)
            await done.wait()
            if failures:
                raise failures[0]

        return on_rebalance


class ShareConsumer(Blocking[share_consumer.ShareConsumer]):
    """Receives records from a share group in a program without an event loop. `odradek.client.ShareConsumer` describes
    the settings.

        with ShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="workers") as consumer:
            for records in consumer.getmany().values():
                ...

    A consumer must be started before use and closed afterwards, preferably with `with`. It sends heartbeats in the
    background. `on_acknowledged` runs in the event loop's thread and must not call this consumer. Only one thread at a
    time may use the consumer, except for `share_group_metadata`, which is thread-safe.
    """

    @with_parameters_of(share_consumer.ShareConsumer)
    def __init__(self, make: Callable[[], share_consumer.ShareConsumer]) -> None:
        super().__init__(make)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The duration of acquisition locks in ms, as last reported by the brokers, or None before the first response.
        If brokers report different durations, the value is the shortest of them."""
        return self._client.acquisition_lock_timeout_ms

    start = blocking(share_consumer.ShareConsumer.start)
    close = blocking(share_consumer.ShareConsumer.close)
    subscribe = on_the_loop(share_consumer.ShareConsumer.subscribe)
    unsubscribe = blocking(share_consumer.ShareConsumer.unsubscribe)
    subscription = on_the_loop(share_consumer.ShareConsumer.subscription)
    assignment = on_the_loop(share_consumer.ShareConsumer.assignment)
    getmany = blocking(share_consumer.ShareConsumer.getmany)
    commit = blocking(share_consumer.ShareConsumer.commit)
    share_group_metadata = blocking(share_consumer.ShareConsumer.share_group_metadata)

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledges a record. The next `getmany` or `commit` sends the acknowledgement; until then, another call can
        change it. Never waits.

        With RENEW, the consumer keeps the record. It can be acknowledged again once the renewal has been sent. Raises
        IllegalState if acknowledgement is implicit, if the record does not belong to this member or has already been
        acknowledged, or if a transaction that is still open has acknowledged it.
        """
        self._client.acknowledge(record, kind)
