"""Tests that the broker does not compare each entry of a request with all existing entries.

The work grows with the number of entries in the request plus the number of existing entries, not with the product of
the two numbers.
"""

from collections.abc import Callable

from odradek.broker.security.tokens.decisions import visible_tokens
from odradek.broker.security.tokens.image import DelegationTokens
from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from tests.support.consumer_scene import ConsumerScene
from tests.support.group_scene import GROUP
from tests.support.steps import steps_of
from tests.support.variants import pure_only

FEW, MANY = 20, 160


def grows_linearly(prepared: Callable[[int], Callable[[], object]]) -> bool:
    few, many = (steps_of(prepared(count)) for count in (FEW, MANY))
    assert few > FEW
    return many < 2 * few * (MANY // FEW)


@pure_only
def test_deleting_offsets_of_many_topics_of_a_group_with_many_members() -> None:
    def deleting(count: int) -> Callable[[], object]:
        scene = ConsumerScene(topics={"t": 1})
        for number in range(count):
            scene.member(f"m-{number}", "t")
        topics = [OffsetDeleteRequestTopic(name=f"other-{number}") for number in range(count)]
        return lambda: scene.core.delete_offsets(OffsetDeleteRequest(group_id=GROUP, topics=topics))

    assert grows_linearly(deleting)


@pure_only
def test_describing_many_tokens_for_many_owners() -> None:
    def describing(count: int) -> Callable[[], object]:
        tokens = DelegationTokens()
        for number in range(count):
            tokens.replay(DelegationTokenRecord(token_id=f"t-{number}", owner="User:alice", requester="User:alice"))
        owners = [f"User:{number}" for number in range(count)]
        return lambda: list(visible_tokens(tokens, owners, "User:bob", lambda token: True))

    assert grows_linearly(describing)
