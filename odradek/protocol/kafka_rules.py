"""The Kafka release whose rules a broker follows. The rules are the differences between releases that neither an API
version nor a feature level expresses."""

from enum import IntEnum


class KafkaRules(IntEnum):
    """A Kafka release. Releases are ordered: `rules >= KafkaRules.KAFKA_4_4` is true if the rules of 4.4 apply.

    A broker follows the rules of the newest release, or those of an older release that it emulates
    (`odradek.broker.api.served.OfferedVersions`). docs/spec/kafka-4.4.md lists the rules that changed.
    """

    KAFKA_4_3 = 403  # also used for all older releases, because earlier rule changes are not emulated
    KAFKA_4_4 = 404


NEWEST = KafkaRules.KAFKA_4_4
