"""Tests that a DeleteAcls filter, which is compared with only some of the ACLs, finds the same ACLs as a comparison
with all of them."""

from collections.abc import Callable
from itertools import product

import pytest

from odradek.broker.metadata import acl_changes
from odradek.broker.metadata.acl_changes import create_acls, delete_acls
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.security.acl.acls import Acl, AclFilter
from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.metadata import ids

ANY = 1
ALL = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


def image_of(*acls: Acl, new_uuid: Callable[[], bytes] | None = None) -> MetadataImage:
    image = MetadataImage()
    for start in range(0, len(acls), 10_000):
        for record in create_acls(image, acls[start : start + 10_000], new_uuid or ids()).records:
            image.replay(record)
    return image


def acl(
    resource: ResourceType = ResourceType.TOPIC,
    name: str = "a",
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
) -> Acl:
    return Acl(resource, name, pattern, principal, "*", Operation.READ, Permission.ALLOW)


def test_each_filter_finds_what_a_comparison_with_all_finds() -> None:
    kinds = (ResourceType.TOPIC, ResourceType.GROUP)
    patterns = (PatternType.LITERAL, PatternType.PREFIXED)
    acls = [acl(*each) for each in product(kinds, ("a", "ab", "*"), patterns, ("User:alice", "User:bob"))]
    image = image_of(*acls)
    numbers = (ANY, PatternType.MATCH.value, *(each.value for each in patterns))
    for resource, name, pattern, principal in product(
        (ANY, *(each.value for each in kinds)), (None, "a", "abc", "*"), numbers, (None, "User:bob", "User:carol")
    ):
        acl_filter = ALL._replace(resource=resource, name=name, pattern=pattern, principal=principal)
        (found,) = delete_acls(image, [acl_filter, ALL]).response[:1]
        assert found == [each for each in acls if acl_filter.matches(each)], acl_filter


def test_filters_that_name_a_resource_or_a_principal_may_be_many() -> None:
    image = image_of(*(acl(name=f"t{number}", principal=f"User:{number}") for number in range(1_000)))
    by_name = [
        ALL._replace(resource=ResourceType.TOPIC.value, name=f"t{number}", pattern=PatternType.LITERAL.value)
        for number in range(1_000)
    ]
    by_principal = [ALL._replace(principal=f"User:{number}") for number in range(1_000)]
    for filters in (by_name, by_principal):
        assert len(delete_acls(image, filters).records) == 1_000


def test_too_many_comparisons_are_refused() -> None:
    image = image_of(*(acl(name=f"t{number}") for number in range(1_000)))
    hosts = [ALL._replace(host=f"10.0.0.{number}") for number in range(acl_changes.MAX_COMPARISONS // 1_000 + 1)]
    assert len(delete_acls(image, hosts[:-1]).response) == len(hosts) - 1
    with pytest.raises(KafkaError, match="in several requests") as refused:
        delete_acls(image, hosts)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
