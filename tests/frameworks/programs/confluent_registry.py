"""A program with confluent-kafka's client and serializers. test_registry_clients.py describes what it must do."""

import json
import sys
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

bootstrap, url, prefix, given = sys.argv[1:]
client = SchemaRegistryClient({"url": url})
ORDER = {"id": 7, "price": {"currency": "EUR", "units": 12}, "note": "gift"}


def order_class() -> type[Message]:
    """Returns the class that protoc would generate for the second version of the schema."""
    pool, fields = descriptor_pool.DescriptorPool(), descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    message = money.message_type.add(name="Money")
    message.field.add(name="currency", number=1, type=fields.TYPE_STRING, label=1)
    message.field.add(name="units", number=2, type=fields.TYPE_INT64, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.append("shop/money.proto")
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=fields.TYPE_INT64, label=1)
    message.field.add(name="price", number=2, type=fields.TYPE_MESSAGE, type_name=".shop.Money", label=1)
    message.field.add(name="note", number=3, type=fields.TYPE_STRING, label=1)
    for file in (money, order):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def serializers(kind: str, schema: Schema) -> tuple[Any, Any]:
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    if kind == "AVRO":
        return AvroSerializer(client, schema, conf=latest), AvroDeserializer(client)
    if kind == "JSON":
        text = Schema(schema.schema_str, "JSON", schema.references)
        return JSONSerializer(text, client, conf=latest), JSONDeserializer(text, schema_registry_client=client)
    # The serializer registers the schema as a base64-encoded descriptor. It registers imported schemas under their file
    # names.
    return ProtobufSerializer(Order, client), ProtobufDeserializer(Order)


Order = order_class()


for kind, texts in json.loads(given).items():
    topic = f"{prefix}-{kind.lower()}"
    subject, reference = f"{topic}-value", f"{topic}-money"
    client.register_schema(reference, Schema(texts["money"], kind))
    uses = [SchemaReference(texts["name"], reference, 1)]
    ids = [client.register_schema(subject, Schema(texts[name], kind, uses)) for name in ("first", "second")]
    try:
        client.register_schema(subject, Schema(texts["refused"], kind, uses))
        refused = 200
    except SchemaRegistryError as error:
        refused = error.http_status_code
    second = Schema(texts["second"], kind, uses)
    assert client.lookup_schema(subject, second).schema_id == ids[1]
    assert client.test_compatibility(subject, second)
    write, read = serializers(kind, second)
    context = SerializationContext(topic, MessageField.VALUE)
    value = json_format.ParseDict(ORDER, Order()) if kind == "PROTOBUF" else ORDER
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, write(value, context))
    producer.flush()
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    record = None
    while record is None or record.error():
        record = consumer.poll(1)
    found = read(record.value(), context)
    consumer.close()
    if kind == "PROTOBUF":
        price = {"currency": found.price.currency, "units": found.price.units}
        found = {"id": found.id, "price": price, "note": found.note}
    print(json.dumps({"type": kind, "ids": ids, "refused": refused, "read": found}), flush=True)
