"""Creates topics for tests, with confluent-kafka's AdminClient."""

import re
import uuid
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.clients.speakers import PATIENCE_S, wait_for


def new_admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "topic.metadata.propagation.max.ms": 0})


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, *, exact: bool = False
) -> str:
    """Creates a topic and waits until all of its partitions have leaders. Returns the topic's name, which gets a unique
    suffix unless `exact` is set."""
    if not exact:
        name = f"{re.sub(r'[^a-zA-Z0-9._-]', '-', name)[:150]}-{uuid.uuid4().hex[:8]}"
    admin = new_admin(bootstrap)
    settings = {key: str(value) for key, value in (config or {}).items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
    # Kafka answers CreateTopics before every Metadata response contains the topic.
    wait_for(f"{name} to be led", lambda: is_led(admin, name, partitions))
    return name


def list_topics(client: AdminClient | Producer, topic: str | None = None) -> ClusterMetadata:
    """Lists topics, retrying if librdkafka closes its bootstrap connection while the request is pending."""
    while True:
        try:
            return client.list_topics(**({} if topic is None else {"topic": topic}), timeout=PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TRANSPORT:
                raise


def is_led(admin: AdminClient, name: str, partitions: int) -> bool:
    described = list_topics(admin, name).topics[name]
    return (
        described.error is None
        and len(described.partitions) == partitions
        and all(one.leader >= 0 for one in described.partitions.values())
    )
