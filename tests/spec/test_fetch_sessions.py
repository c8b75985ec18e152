"""Tests fetch sessions (KIP-227). A consumer names its partitions once, and later responses omit unchanged
partitions."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from odradek.broker.fetch.sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    NO_SESSION_ID,
    Fetch,
    FetchPartition,
    FetchSessions,
    FinishedFetch,
    NamedBy,
    next_epoch,
)
from odradek.protocol.errors import ErrorCode, KafkaError


@dataclass
class Answer:
    high_watermark: int = 10
    log_start_offset: int = 0
    size_bytes: int = 0
    error_code: int = 0
    has_diverging_epoch: bool = False


def ids(*session_ids: int) -> Iterator[int]:
    yield from session_ids
    yield from range(1_000, 2_000)


def sessions(max_sessions: int = 10, *session_ids: int) -> FetchSessions:
    source = ids(*session_ids)
    return FetchSessions(max_sessions, lambda: next(source))


def at(topic: str, index: int = 0, offset: int = 0) -> FetchPartition:
    return FetchPartition(topic, index, offset, 1024)


def full(cache: FetchSessions, *partitions: FetchPartition, session_id: int = 0, now_ms: int = 0) -> Fetch:
    return cache.start_fetch(session_id, INITIAL_EPOCH, partitions, (), NamedBy.TOPIC_NAME, now_ms)


def incremental(
    cache: FetchSessions,
    session_id: int,
    epoch: int,
    *partitions: FetchPartition,
    forget: tuple[tuple[str, int], ...] = (),
    named_by: NamedBy = NamedBy.TOPIC_NAME,
    now_ms: int = 0,
) -> Fetch:
    return cache.start_fetch(session_id, epoch, partitions, forget, named_by, now_ms)


def established(cache: FetchSessions, *partitions: FetchPartition, now_ms: int = 0) -> int:
    """Opens a session whose first response had high watermark 10 and log start offset 0 for every partition.

    Returns the session id.
    """
    return full(cache, *partitions, now_ms=now_ms).finish([Answer()] * len(partitions), now_ms).session_id


def topics(fetch: Fetch) -> list[object]:
    return [partition.topic for partition in fetch.partitions]


def test_a_full_fetch_sends_every_partition_and_opens_a_session() -> None:
    cache = sessions(10, 77)
    fetch = full(cache, at("a"), at("b"))
    assert fetch.finish([Answer(), Answer()], 0) == FinishedFetch(ErrorCode.NONE, 77, range(2))
    assert len(cache) == 1


def test_a_session_id_in_use_is_not_given_out_again() -> None:
    cache = sessions(10, 77, 77, 0, 78)
    assert established(cache, at("a")) == 77
    assert established(cache, at("a")) == 78


def test_a_final_epoch_asks_for_no_session_and_ends_the_one_named() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    fetch = cache.start_fetch(session_id, FINAL_EPOCH, [at("b")], (), NamedBy.TOPIC_NAME, 0)
    assert fetch.finish([Answer()], 0) == FinishedFetch(ErrorCode.NONE, NO_SESSION_ID, range(1))
    assert len(cache) == 0


def test_a_full_fetch_that_names_a_session_replaces_it() -> None:
    cache = sessions(10, 5, 6)
    session_id = established(cache, at("a"))
    assert full(cache, at("a"), session_id=session_id).finish([Answer()], 0).session_id == 6
    assert len(cache) == 1


def test_an_incremental_fetch_reads_all_partitions_of_the_session() -> None:
    cache = sessions()
    session_id = established(cache, at("a"), at("b"))
    assert topics(incremental(cache, session_id, 1)) == ["a", "b"]


def test_nothing_new_sends_no_partition() -> None:
    cache = sessions()
    session_id = established(cache, at("a"), at("b"))
    fetch = incremental(cache, session_id, 1)
    assert fetch.finish([Answer(), Answer()], 0) == FinishedFetch(ErrorCode.NONE, session_id, [])


@pytest.mark.parametrize(
    "news",
    [
        Answer(size_bytes=1),
        Answer(high_watermark=11),
        Answer(log_start_offset=3),
        Answer(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value),
        Answer(has_diverging_epoch=True),
    ],
)
def test_a_partition_with_news_is_sent(news: Answer) -> None:
    cache = sessions()
    session_id = established(cache, at("a"), at("b"))
    assert incremental(cache, session_id, 1).finish([Answer(), news], 0).sent == [1]


def test_a_new_high_watermark_is_sent_once() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    assert incremental(cache, session_id, 1).finish([Answer(high_watermark=12)], 0).sent == [0]
    assert incremental(cache, session_id, 2).finish([Answer(high_watermark=12)], 0).sent == []


def test_after_an_error_the_partition_is_sent_when_it_is_well_again() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    failed = Answer(high_watermark=-1, log_start_offset=-1, error_code=3)
    assert incremental(cache, session_id, 1).finish([failed], 0).sent == [0]
    assert incremental(cache, session_id, 2).finish([failed], 0).sent == [0]
    assert incremental(cache, session_id, 3).finish([Answer()], 0).sent == [0]
    assert incremental(cache, session_id, 4).finish([Answer()], 0).sent == []


def test_a_request_moves_offsets_adds_and_forgets_partitions() -> None:
    cache = sessions()
    session_id = established(cache, at("a"), at("b"))
    fetch = incremental(cache, session_id, 1, at("a", offset=9), at("c"), forget=(("b", 0),))
    assert [(partition.topic, partition.fetch_offset) for partition in fetch.partitions] == [("a", 9), ("c", 0)]


def test_partitions_that_had_records_go_to_the_end() -> None:
    """Checks that busy partitions move to the end. At the front, they would fill every response, and the others would
    never get a turn."""
    cache = sessions()
    session_id = established(cache, at("a"), at("b"), at("c"))
    incremental(cache, session_id, 1).finish([Answer(size_bytes=5), Answer(), Answer()], 0)
    assert topics(incremental(cache, session_id, 2)) == ["b", "c", "a"]


def test_a_session_whose_last_partition_is_forgotten_ends() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    fetch = incremental(cache, session_id, 1, forget=(("a", 0),))
    assert fetch.finish([], 0) == FinishedFetch(ErrorCode.NONE, NO_SESSION_ID, range(0))
    assert len(cache) == 0


def refused(code: ErrorCode, cache: FetchSessions, session_id: int, epoch: int, named_by: NamedBy) -> None:
    with pytest.raises(KafkaError) as refusal:
        incremental(cache, session_id, epoch, named_by=named_by)
    assert refusal.value.code is code


def test_an_unknown_session_is_refused() -> None:
    refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, sessions(), 123_456, 5, NamedBy.TOPIC_NAME)


@pytest.mark.parametrize("epoch", [2, 7, MAX_EPOCH])
def test_an_epoch_that_was_not_next_is_refused_and_changes_nothing(epoch: int) -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, cache, session_id, epoch, NamedBy.TOPIC_NAME)
    assert topics(incremental(cache, session_id, 1)) == ["a"]


def test_a_repeated_request_is_refused() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    incremental(cache, session_id, 1)
    refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, cache, session_id, 1, NamedBy.TOPIC_NAME)


def test_a_session_cannot_change_from_names_to_ids() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, cache, session_id, 1, NamedBy.TOPIC_ID)


def test_a_waiting_fetch_fails_if_another_fetch_of_its_session_overtakes_it() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    parked = incremental(cache, session_id, 1)
    incremental(cache, session_id, 2)
    answer = parked.finish([Answer(size_bytes=5)], 0)
    assert answer == FinishedFetch(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, ())


def test_the_epoch_counts_fetches_and_wraps_to_one() -> None:
    cache = sessions()
    session_id = established(cache, at("a"))
    for epoch in (1, 2, 3):
        incremental(cache, session_id, epoch)
    assert next_epoch(3) == 4
    assert next_epoch(MAX_EPOCH) == 1


def test_without_room_the_client_goes_on_without_a_session() -> None:
    cache = sessions(1)
    established(cache, at("a"))
    assert established(cache, at("b"), at("c")) == NO_SESSION_ID


def test_a_cache_of_size_0_opens_no_sessions() -> None:
    assert established(sessions(0), at("a")) == NO_SESSION_ID


def test_an_idle_session_makes_room() -> None:
    cache = sessions(1, 5, 6)
    first = established(cache, at("a"), at("b"))
    later = EVICTION_MS + 1
    assert established(cache, at("c"), now_ms=later) == 6
    refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, cache, first, 1, NamedBy.TOPIC_NAME)


def test_the_least_recently_used_session_is_evicted() -> None:
    cache = sessions(2, 5, 6, 7)
    first, second = established(cache, at("a")), established(cache, at("b"))
    incremental(cache, first, 1, now_ms=EVICTION_MS)
    assert established(cache, at("c"), now_ms=EVICTION_MS + 1) == 7
    refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, cache, second, 1, NamedBy.TOPIC_NAME)


@pytest.mark.parametrize(("partitions", "makes_room"), [(2, False), (3, True)])
def test_a_settled_session_makes_room_only_for_a_larger_one(partitions: int, makes_room: bool) -> None:
    cache = sessions(1, 5, 6)
    session_id = established(cache, at("a"), at("b"))
    for epoch in (1, 2):
        incremental(cache, session_id, epoch, now_ms=epoch * EVICTION_MS)
    new_partitions = [at("c", index) for index in range(partitions)]
    created = established(cache, *new_partitions, now_ms=2 * EVICTION_MS + 1)
    assert (created != NO_SESSION_ID) is makes_room


def test_a_young_session_is_never_pushed_out() -> None:
    cache = sessions(1)
    established(cache, at("a"))
    assert established(cache, at("b"), at("c"), now_ms=EVICTION_MS) == NO_SESSION_ID


def test_a_session_that_would_hold_too_many_partitions_in_all_is_not_begun() -> None:
    cache = FetchSessions(10, lambda: 77, max_bytes=3 * at("a").size_bytes)
    first = established(cache, at("a"), at("b"))
    assert full(cache, at("c"), at("d")).finish([Answer(), Answer()], 0).session_id == NO_SESSION_ID
    full(cache, at("a"), session_id=first)  # The full fetch ends this session.
    assert established(cache, at("c"), at("d")) == 77


def test_a_session_that_grows_beyond_what_all_may_hold_ends() -> None:
    cache = FetchSessions(10, lambda: 77, max_bytes=3 * at("a").size_bytes)
    session_id = established(cache, at("a"), at("b"))
    with pytest.raises(KafkaError) as refused:
        incremental(cache, session_id, 1, at("c"), at("d"))
    assert (refused.value.code, len(cache)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_long_name_counts_with_its_length() -> None:
    long = "n" * 1_000
    cache = FetchSessions(10, iter((7, 8, 9)).__next__, max_bytes=at(long).size_bytes + at("a").size_bytes)
    session_id = established(cache, at(long))
    assert established(cache, at("a"), at("b")) == NO_SESSION_ID
    assert established(cache, at("a")) != NO_SESSION_ID
    incremental(cache, session_id, 1, at("b"), forget=((long, 0),))
    assert established(cache, at("c")) != NO_SESSION_ID


def test_a_session_that_is_too_large_for_the_cache_evicts_no_other() -> None:
    cache = FetchSessions(10, lambda: 77, max_bytes=at("a").size_bytes)
    established(cache, at("a"))
    assert established(cache, at("b"), at("c"), now_ms=EVICTION_MS + 1) == NO_SESSION_ID
    assert len(cache) == 1


def test_idle_sessions_make_room_for_the_partitions_of_others() -> None:
    cache = FetchSessions(10, iter((7, 8, 9)).__next__, max_bytes=3 * at("a").size_bytes)
    established(cache, at("a"))
    established(cache, at("b"))
    assert established(cache, at("c"), at("d"), at("e"), now_ms=EVICTION_MS + 1) == 9
    assert len(cache) == 1
