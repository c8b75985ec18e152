"""Tests ACLs whose host is a range of addresses (KIP-1276, docs/spec/kafka-4.4.md#s5-4)."""

from collections.abc import Iterable

import pytest

from odradek.broker.metadata.acl_changes import create_acls
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.security.acl.acls import Acl, AclFilter, Acls
from odradek.broker.security.acl.authorizer import StandardAuthorizer
from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from tests.support.metadata import ids

E = ErrorCode
ALICE = "User:alice"
RANGES = (
    "10.0.0.0/8",
    "10.0.0.1/8",
    "0.0.0.0/0",
    "255.255.255.255/32",
    "::1/128",
    "2001:db8::/32",
    "::/0",
    "fe80::1%eth0/64",
)
OLD_MESSAGE = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."


def acl(host: str, permission: Permission = Permission.ALLOW) -> Acl:
    return Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, ALICE, host, Operation.READ, permission)


def created(host: str, metadata_version: int = 33, rules: KafkaRules = NEWEST) -> tuple[ErrorCode, str | None]:
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))
    decision = create_acls(image, [acl(host), acl("10.1.1.1")], ids(), rules)
    assert decision.response[1] is None  # The second ACL of the request is created even if the first one is refused.
    assert len(decision.records) == (2 if decision.response[0] is None else 1)
    (refusal, _) = decision.response
    return (E.NONE, None) if refusal is None else (refusal.code, refusal.message)


def may(host: str, *acls: Acl, rules: KafkaRules = NEWEST) -> bool:
    image = Acls()
    for number, each in enumerate(acls):
        image.add(number.to_bytes(16), each)
    authorizer = StandardAuthorizer(image, frozenset(), allows_everyone=False, rules=rules)
    return authorizer.decide(ALICE, host, Operation.READ, ResourceType.TOPIC, "t").is_allowed


@pytest.mark.parametrize("host", RANGES)
@pytest.mark.parametrize("metadata_version", [32, 33])
def test_a_range_is_taken_from_metadata_version_32_on(host: str, metadata_version: int) -> None:
    """R1: an ACL for an address range needs metadata.version 32 or later."""
    assert created(host, metadata_version) == (E.NONE, None)


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("10.0.0.300/8", "Value [300] not in range [0,255]"),
        ("10.0.0.0/", "Could not parse [10.0.0.0/]"),
        ("10.0.0/24", "Could not parse [10.0.0/24]"),
        ("10.0.0.0/-1", "Could not parse [10.0.0.0/-1]"),
        ("10.0.0.0/8 ", "Could not parse [10.0.0.0/8 ]"),
        ("10.0.0.0/8\n", "Could not parse [10.0.0.0/8\n]"),
        ("10.0.0.\u0661/8", "Could not parse [10.0.0.\u0661/8]"),
        ("/", "Could not parse [/]"),
        ("a:b/64", "Could not parse [a:b]"),
        ("::1/129", "Could not parse [::1/129] - prefix length must be between 0 and 128"),
    ],
)
def test_a_host_with_a_slash_that_is_no_range_is_refused(host: str, what: str) -> None:
    """R2: the error message names the invalid part of the host."""
    assert created(host) == (E.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {what}")


@pytest.mark.parametrize("host", ["10.0.0.0/8", "10.0.0.0/33", "a/b"])
@pytest.mark.parametrize("metadata_version", [30, 31])
def test_before_metadata_version_32_no_host_has_a_slash(host: str, metadata_version: int) -> None:
    """R3: every host with a slash is refused at an earlier metadata.version."""
    assert created(host, metadata_version) == (E.UNSUPPORTED_VERSION, OLD_MESSAGE)


@pytest.mark.parametrize("host", ["10.0.0.0/8", "10.0.0.0/33", ""])
def test_kafka_4_3_takes_any_text_and_matches_none_of_it(host: str) -> None:
    """R3: Kafka 4.3 stores a host with a slash, but the ACL never matches a client."""
    assert created(host, 30, KafkaRules.KAFKA_4_3) == (E.NONE, None)
    assert not may("10.1.2.3", acl(host), rules=KafkaRules.KAFKA_4_3)


INSIDE: Iterable[tuple[str, str, bool]] = [
    ("10.0.0.0/8", "10.255.0.1", True),
    ("10.0.0.1/8", "10.255.0.1", True),
    ("10.0.0.0/8", "11.0.0.1", False),
    ("10.0.0.0/8", "::ffff:10.0.0.1", True),
    ("0.0.0.0/0", "192.168.1.1", True),
    ("0.0.0.0/0", "::1", False),
    ("127.0.0.1/32", "127.0.0.1", True),
    ("127.0.0.1/32", "127.0.0.2", False),
    ("2001:db8::/32", "2001:db8:0:0:0:0:0:1", True),
    ("2001:db8::/32", "2001:db9::1", False),
    ("::/0", "::1", True),
    ("::/0", "127.0.0.1", False),
    ("fe80::1%eth0/64", "fe80::2%eth1", True),
    ("10.0.0.0/33", "10.0.0.0", False),
    ("10.0.0.0/8", "nowhere", False),
]


@pytest.mark.parametrize(("host", "peer", "matches"), INSIDE)
def test_a_range_matches_the_addresses_inside_it(host: str, peer: str, matches: bool) -> None:
    """R4 and R5: a range matches at any metadata.version."""
    assert may(peer, acl(host)) is matches


def test_a_denied_range_wins_over_an_allowed_one() -> None:
    """R4: a DENY for a range overrides an ALLOW for another range."""
    allowed, denied = acl("127.0.0.0/8"), acl("127.0.0.1/32", Permission.DENY)
    assert may("127.0.0.1", allowed)
    assert not may("127.0.0.1", allowed, denied)
    assert may("127.0.0.2", allowed, denied)


def test_a_filter_compares_the_text_of_a_range() -> None:
    """R6: a filter is compared with the text of the range, not with the addresses in it."""

    def finds(host: str | None) -> bool:
        topic, literal = ResourceType.TOPIC.value, PatternType.LITERAL.value
        acl_filter = AclFilter(topic, "t", literal, None, host, Operation.READ.value, Permission.ALLOW.value)
        return acl_filter.matches(acl("10.0.0.0/8"))

    assert finds("10.0.0.0/8")
    assert finds(None)
    assert not finds("10.0.0.5")


def test_hosts_without_a_slash_are_refused_only_if_they_are_empty() -> None:
    """R7: a host without a slash is refused only if it is empty."""
    assert created("foo") == (E.NONE, None)
    assert created("*") == (E.NONE, None)
    assert created("") == (E.INVALID_REQUEST, "Host pattern cannot be null or empty")
