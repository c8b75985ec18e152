"""The Kafka release whose rules a broker follows. The rules are the differences between releases that neither a version
of an API nor the level of a feature expresses."""

from enum import IntEnum


class KafkaRules(IntEnum):
    """A Kafka release. Releases are ordered: `rules >= KafkaRules.KAFKA_4_4` is true if the rules of 4.4 apply.

    A broker follows the rules of the newest release, or the rules of an older release while it emulates that release
    (`odradek.broker.api.served.OfferedVersions`). docs/spec/kafka-4.4.md lists the rules that changed.
    """

    KAFKA_4_3 = 403  # also used for all older releases, because earlier changes of rules are not emulated
    KAFKA_4_4 = 404


NEWEST = KafkaRules.KAFKA_4_4
