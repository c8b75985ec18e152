"""The Kafka release whose rules a broker follows, for differences beyond versions and features."""

from enum import IntEnum


class KafkaRules(IntEnum):
    """A Kafka release. They are ordered: `rules >= KafkaRules.KAFKA_4_4` is true if the rules of 4.4 apply.

    A broker follows the newest release, or an older one while it emulates that
    (`odradek.broker.api.served.OfferedVersions`). docs/spec/kafka-4.4.md lists the rules that changed.
    """

    KAFKA_4_3 = 403  # used for all older releases as well: earlier changes of rules are not distinguished
    KAFKA_4_4 = 404


NEWEST = KafkaRules.KAFKA_4_4
