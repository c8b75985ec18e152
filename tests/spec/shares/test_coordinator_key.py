"""Tests the key `group:topic id:partition`, which clients use to find the share coordinator
(docs/spec/share-groups.md#s1-7)."""

from base64 import urlsafe_b64encode

import pytest

from odradek.broker.shares.core.state import SharePartitionKey

TOPIC_ID = bytes(range(16))
TEXT = urlsafe_b64encode(TOPIC_ID).decode().rstrip("=")


@pytest.mark.parametrize(
    ("text", "group_id", "partition"),
    [
        (f"g:{TEXT}:0", "g", 0),
        (f"a:b::{TEXT}==:7", "a:b:", 7),
        (f"g:{TEXT}:-1:::", "g", -1),
        (f" g\n:{TEXT}:+12", " g\n", 12),
        (f":{TEXT}:1:{TEXT}:2", f":{TEXT}:1", 2),
    ],
)
def test_a_group_id_may_contain_colons_and_those_at_the_end_are_ignored(
    text: str, group_id: str, partition: int
) -> None:
    assert SharePartitionKey.parse(text) == (group_id, TOPIC_ID, partition)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "g",
        f"g:{TEXT}",
        f":{TEXT}:0",
        f" \t:{TEXT}:0",
        f"g:{TEXT}:",
        f"g:{TEXT}:x",
        f"g:{TEXT[:-1]}:0",
        f"g:{TEXT}=:0",
        f"g:{TEXT}:2147483648",
        f"g:{TEXT}:0\n",
        ":" * 32_000,
        "g:" * 16_000,
        f"g{':' * 31_000}{TEXT}:0x",
    ],
)
def test_an_invalid_key_is_refused_and_its_error_quotes_only_the_beginning(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form group:topic id:partition") as refused:
        SharePartitionKey.parse(text)
    assert len(str(refused.value)) < 400
