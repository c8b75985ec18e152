"""Tests that the schemas agree with the single place in the code that defines the numbers of KIP-1289."""

from odradek.protocol import kip_1289
from odradek.protocol.schema import load
from tests.support.message_values import versions

MODULES = sorted({module for module, _ in versions()})


def test_the_request_and_the_response_have_the_api_key() -> None:
    named = {module for module in MODULES if load(module).key == kip_1289.API_KEY}
    assert named == {"txn_share_acknowledge_request", "txn_share_acknowledge_response"}


def test_tags_that_no_kafka_knows_are_those_of_staged_acknowledgements() -> None:
    private = {
        (module, field.tag)
        for module in MODULES
        for fields in (load(module).fields, *load(module).structs.values())
        for field in fields
        if field.tag is not None and field.tag >= kip_1289.PRIVATE_TAGS
    }
    assert {tag for _, tag in private} == {kip_1289.PRIVATE_TAGS, kip_1289.PRIVATE_TAGS + 1}
    assert {module for module, _ in private} >= {"share_snapshot_value", "share_update_value"}
