"""The release of Kafka whose rules a broker follows, where releases differ in more than versions and features."""

from enum import IntEnum


class KafkaRules(IntEnum):
    """Ordered by release: `rules >= KafkaRules.KAFKA_4_4` asks whether a rule that came with 4.4 holds.

    A broker follows the newest, and an older one while it emulates an older release, which its
    `odradek.broker.api.served.Offered` says. docs/spec/kafka-4.4.md has the rules that changed.
    """

    KAFKA_4_3 = 403  # and what is older: no rule is kept apart that changed before
    KAFKA_4_4 = 404


NEWEST = KafkaRules.KAFKA_4_4
