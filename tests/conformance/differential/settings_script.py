"""Scripts for DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from collections.abc import Callable

from odradek.protocol.messages.alter_configs_request import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs_request import AlterableConfig as Change
from odradek.protocol.messages.incremental_alter_configs_request import AlterConfigsResource as ChangedResource
from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from tests.conformance.differential.admin_script import settled
from tests.conformance.differential.conversation import Talk

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

# These broker settings are defaults for topics, or exist on every broker.
SOME = [
    "log.segment.bytes",
    "log.retention.ms",
    "log.cleanup.policy",
    "message.max.bytes",
    "num.partitions",
    "compression.type",
]


def describe(talk: Talk, label: str, kind: int, name: str, keys: list[str] | None, version: int, **more: bool) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    talk.ask(label, DescribeConfigsRequest(resources=[resource], **more), version)


def describe_configs(talk: Talk, version: int) -> None:
    name = f"described-{version}"
    talk.make_topic(name, cleanup_policy="compact", retention_ms=5000)
    describe(talk, "all of a topic", TOPIC, name, None, version)
    describe(talk, "with synonyms", TOPIC, name, None, version, include_synonyms=True)
    describe(talk, "some of a topic", TOPIC, name, ["retention.ms", "segment.bytes"], version, include_synonyms=True)
    describe(talk, "unknown keys of a topic", TOPIC, name, ["no.such", "retention.ms"], version)
    describe(talk, "no keys of a topic", TOPIC, name, [], version)
    describe(talk, "an unknown topic", TOPIC, "nobody-made-this", None, version)
    describe(talk, "an invalid topic", TOPIC, "a b", None, version)
    describe(talk, "an empty topic name", TOPIC, "", None, version)
    describe(talk, "some of the broker", BROKER, "1", SOME, version, include_synonyms=True)
    describe(talk, "some of all brokers", BROKER, "", SOME, version, include_synonyms=True)
    describe(talk, "another broker", BROKER, "7", SOME, version)
    describe(talk, "a broker that is no number", BROKER, "x", SOME, version)
    for kind in (0, 1, 3, 64, -1):
        describe(talk, f"resource type {kind}", kind, "x", None, version)
    both = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=one, configuration_keys=[]) for one in (name, name)
    ]
    talk.ask("the same twice", DescribeConfigsRequest(resources=both), version)
    talk.ask("nothing", DescribeConfigsRequest(), version)


BAD_VALUES: dict[str, dict[str, str | None]] = {
    "bad number": {"retention.ms": "x"},
    "too small": {"segment.bytes": "3"},
    "unknown": {"no.such.setting": "1"},
    "bad choice": {"message.timestamp.type": "Never"},
    "null": {"retention.ms": None},
    "null and unknown": {"no.such.setting": None},
    "bad list": {"cleanup.policy": "compact,burn"},
    "bad boolean": {"preallocate": "maybe"},
}


def alter_configs(talk: Talk, version: int) -> None:
    name = f"altered-{version}"
    talk.make_topic(name, segment_ms=7_000_000)

    def alter(
        label: str, settings: dict[str, str | None], kind: int = TOPIC, of: str = name, *, dry: bool = False
    ) -> None:
        configs = [AlterableConfig(name=key, value=value) for key, value in settings.items()]
        resource = AlterConfigsResource(resource_type=kind, resource_name=of, configs=configs)
        talk.ask(label, AlterConfigsRequest(resources=[resource], validate_only=dry), version)

    alter("validated", {"retention.ms": "1"}, dry=True)
    alter("set", {"retention.ms": "1234567"})
    settled()
    describe(talk, "after set", TOPIC, name, ["retention.ms", "segment.ms"], 4, include_synonyms=True)
    for label, settings in BAD_VALUES.items():
        alter(label, dict(settings))
    alter("nothing", {})
    settled()
    describe(talk, "after nothing", TOPIC, name, ["retention.ms", "segment.ms"], 4)
    alter("an unknown topic", {"retention.ms": "1"}, of="nobody-made-this")
    alter("an invalid topic", {"retention.ms": "1"}, of="a b")
    alter("unknown resource type", {"a": "b"}, kind=99)
    alter("a broker that is not there", {"log.retention.ms": "1"}, kind=BROKER, of="9")
    alter("a broker's read-only setting", {"node.id": "5"}, kind=BROKER, of="1")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name)
    talk.ask("the same twice", AlterConfigsRequest(resources=[resource, resource]), version)


def incremental_alter_configs(talk: Talk, version: int) -> None:
    name = f"changed-{version}"
    talk.make_topic(name, cleanup_policy="compact")

    def alter(
        label: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, of: str = name, dry: bool = False
    ) -> None:
        configs = [Change(name=key, config_operation=how, value=value) for key, how, value in changes]
        resource = ChangedResource(resource_type=kind, resource_name=of, configs=configs)
        talk.ask(label, IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry), version)

    def see(label: str) -> None:
        settled()
        keys = ["cleanup.policy", "retention.ms", "segment.ms"]
        describe(talk, f"after {label}", TOPIC, name, keys, 4, include_synonyms=True)

    alter("validated", ("retention.ms", SET, "1"), dry=True)
    see("validating")
    alter("set two", ("retention.ms", SET, "1234567"), ("segment.ms", SET, "7654321"))
    see("set two")
    alter("append", ("cleanup.policy", APPEND, "delete"))
    see("append")
    alter("append what is there", ("cleanup.policy", APPEND, "delete"))
    see("append again")
    alter("subtract", ("cleanup.policy", SUBTRACT, "compact"))
    see("subtract")
    alter("subtract what is not there", ("cleanup.policy", SUBTRACT, "compact"))
    see("subtract again")
    alter("subtract the last", ("cleanup.policy", SUBTRACT, "delete"))
    see("subtract the last")
    alter("append to a number", ("retention.ms", APPEND, "1"))
    alter("delete", ("retention.ms", DELETE, None))
    alter("delete what is not set", ("retention.ms", DELETE, None))
    alter("delete with a value", ("segment.ms", DELETE, "5"))
    see("delete")
    for label, settings in BAD_VALUES.items():
        for key, value in settings.items():
            alter(label, (key, SET, value))
    alter("one good, one bad", ("segment.ms", SET, "5000000"), ("retention.ms", SET, "x"))
    see("one good, one bad")
    alter("the same key twice", ("segment.ms", SET, "5000000"), ("segment.ms", SET, "6000000"))
    alter("an unknown operation", ("segment.ms", 9, "5000000"))
    alter("nothing")
    alter("an unknown topic", ("retention.ms", SET, "1"), of="nobody-made-this")
    alter("an invalid topic", ("retention.ms", SET, "1"), of="a b")
    alter("unknown resource type", ("a", SET, "b"), kind=99)
    alter("a broker that is not there", ("log.retention.ms", SET, "1000000"), kind=BROKER, of="9")
    alter("a broker that is no number", ("log.retention.ms", SET, "1000000"), kind=BROKER, of="x")
    alter("a broker's read-only setting", ("node.id", SET, "5"), kind=BROKER, of="1")
    alter("a broker's unknown setting", ("no.such.setting", SET, "5"), kind=BROKER, of="1")
    alter("a broker's setting, bad", ("log.retention.ms", SET, "x"), kind=BROKER, of="1")
    for of in ("1", ""):
        alter("a broker's setting", ("log.retention.ms", SET, "86400000"), kind=BROKER, of=of)
        settled()
        describe(talk, "then", BROKER, of, ["log.retention.ms"], 4, include_synonyms=True)
    see("broker's setting")
    for of in ("1", ""):
        alter("back", ("log.retention.ms", DELETE, None), kind=BROKER, of=of)
    resource = ChangedResource(resource_type=TOPIC, resource_name=name)
    talk.ask("the same twice", IncrementalAlterConfigsRequest(resources=[resource, resource]), version)


def list_config_resources(talk: Talk, version: int) -> None:
    if version == 0:
        talk.ask("all that v0 knows", ListConfigResourcesRequest(), version)
        return
    for kinds in ([BROKER], [CLIENT_METRICS], [GROUP], [99], [BROKER, BROKER], [BROKER_LOGGER]):
        talk.ask(f"of types {kinds}", ListConfigResourcesRequest(resource_types=kinds), version)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    describe_configs: 32,
    alter_configs: 33,
    incremental_alter_configs: 44,
    list_config_resources: 74,
}
