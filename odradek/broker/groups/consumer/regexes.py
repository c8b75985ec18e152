"""Subscriptions by regular expression. The coordinator resolves the expressions outside of requests.

If a heartbeat finds that a resolution is due, it sets the REGEX timer. When the timer fires, all expressions of the
group are matched against all topics. Source: docs/spec/consumer-groups.md#s5
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.consumer.member import ConsumerMember
from odradek.broker.groups.consumer.records import regex_record
from odradek.broker.groups.consumer.turn import AT_ONCE_MS, ConsumerTurn

MIN_INTERVAL_MS = 10_000  # minimum time between two resolutions of a group


def subscribe_by_regex(turn: ConsumerTurn, before: ConsumerMember, member: ConsumerMember) -> bool:
    """Applies a changed regular expression after the member has been recorded. Returns whether the member's topics have
    changed as a result. An expression that has not been resolved yet changes the topics once it is resolved.

    Raises KafkaError INVALID_REGULAR_EXPRESSION if the expression is invalid. The check is skipped if another member
    has the same expression.
    """
    if member.regex:
        # The cost is checked on every heartbeat, because it is known only after a resolution.
        turn.cluster.check_cost(member.regex)
    if member.regex == before.regex:
        return False
    if member.regex and turn.group.subscribers_of_regex(member.regex) == 1:
        turn.cluster.check_regex(member.regex)
    turn.drop_regex_of(before)
    return not member.regex or member.regex in turn.group.regexes


def resolve_if_due(turn: ConsumerTurn, may_see: Callable[[str], bool]) -> None:
    """Starts the REGEX timer if a resolution is due. `may_see` returns whether the sender of the heartbeat may see a
    topic; the resolution omits the topics that the sender may not see."""
    group, memory = turn.group, turn.group.memory
    requested = group.subscribed_regexes()
    if not requested or memory.may_see is not None:
        return
    # If the group has no resolved expressions, a resolution is due regardless of the time of the previous one.
    refreshed_ms = memory.refreshed_ms if group.regexes else None
    if refreshed_ms is not None and refreshed_ms <= turn.now_ms <= refreshed_ms + MIN_INTERVAL_MS:
        return
    is_due = (
        not requested <= group.regexes.keys()
        or refreshed_ms is None
        or turn.cluster.version != memory.refreshed_version
        or turn.now_ms > refreshed_ms + turn.config.regex_refresh_interval_ms
    )
    if is_due:
        turn.set_memory(replace(memory, may_see=may_see))
        turn.arm(TimerKind.REGEX, AT_ONCE_MS)


def resolve(turn: ConsumerTurn) -> None:
    """Matches all expressions of the group against all topics. The group's epoch advances if the topics of an
    expression have changed.

    Does nothing if the search is not finished yet; the REGEX timer fires again when the search finishes.
    """
    group, memory = turn.group, turn.group.memory
    if memory.may_see is None:
        turn.cluster.forget_search(group.group_id)
        return
    found = turn.cluster.find_topics(group.group_id, group.subscribed_regexes(), memory.may_see)
    if found is None:
        return
    has_moved = False
    for regex, topics in sorted(found.topics.items()):
        resolved = group.regexes.get(regex)
        if resolved is None or resolved.topics != topics:
            turn.write(regex_record(group.group_id, regex, topics, found.version, turn.now_ms))
            has_moved |= topics != (frozenset() if resolved is None else resolved.topics)
    turn.set_memory(replace(turn.group.memory, may_see=None, refreshed_ms=turn.now_ms, refreshed_version=found.version))
    if has_moved:
        turn.bump_epoch()
