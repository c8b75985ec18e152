import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecordBuilder;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A program with Confluent's registry client for Java, which Flink's format bundles, and with the serializers of this
 * format. test_registry_clients.py describes what it must do.
 */
class FlinkRegistry {
  public static void main(String[] words) throws Exception {
    String bootstrap = words[0], url = words[1], topic = words[2] + "-avro";
    JsonNode texts = new ObjectMapper().readTree(words[3]).get("AVRO");
    String name = texts.get("name").asText(), money = texts.get("money").asText();
    String subject = topic + "-value", reference = topic + "-money";
    SchemaRegistryClient client = new CachedSchemaRegistryClient(url, 100);
    client.register(reference, new AvroSchema(money));
    List<SchemaReference> uses = List.of(new SchemaReference(name, reference, 1));
    Map<String, String> resolved = Map.of(name, money);
    int first = client.register(subject, new AvroSchema(texts.get("first").asText(), uses, resolved, null));
    AvroSchema schema = new AvroSchema(texts.get("second").asText(), uses, resolved, null);
    int second = client.register(subject, schema);
    AvroSchema other = new AvroSchema(texts.get("refused").asText(), uses, resolved, null);
    int refused = 200;
    try {
      client.register(subject, other);
    } catch (RestClientException error) {
      refused = error.getStatus();
    }
    SchemaRegistryClient fresh = new CachedSchemaRegistryClient(url, 100); // nothing is in its cache
    check(fresh.getId(subject, schema) == second);
    check(fresh.getVersion(subject, schema) == 2);
    check(fresh.getLatestSchemaMetadata(subject).getId() == second);
    check(fresh.getLatestSchemaMetadata(subject).getReferences().equals(uses));
    check(fresh.getSchemaBySubjectAndId(subject, second).rawSchema().equals(schema.rawSchema()));
    check(fresh.testCompatibility(subject, schema) && !fresh.testCompatibility(subject, other));
    check(!fresh.testCompatibilityVerbose(subject, other).isEmpty());
    check(fresh.updateCompatibility(subject, "FULL").equals("FULL") && fresh.getCompatibility(subject).equals("FULL"));
    check(fresh.getAllSubjectsById(second).equals(List.of(subject)));

    Schema full = schema.rawSchema();
    GenericRecord price = new GenericRecordBuilder(full.getField("price").schema())
        .set("currency", "EUR").set("units", 12L).build();
    GenericRecord order = new GenericRecordBuilder(full).set("id", 7L).set("price", price).set("note", "gift").build();
    // Flink itself registers the records' schema, without references, so it needs another subject.
    byte[] sent = ConfluentRegistryAvroSerializationSchema.forGeneric(topic + "-flink", full, url).serialize(order);
    try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new ByteArraySerializer(),
        new ByteArraySerializer())) {
      producer.send(new ProducerRecord<>(topic, sent)).get();
    }
    byte[] received = received(bootstrap, topic);
    var deserializer = ConfluentRegistryAvroDeserializationSchema.forGeneric(full, url);
    GenericRecord read = deserializer.deserialize(received);
    ByteBuffer.wrap(received).putInt(1, second); // the same data, with the schema that refers to another one
    check(deserializer.deserialize(received).equals(read));
    System.out.printf("{\"type\": \"AVRO\", \"ids\": [%d, %d], \"refused\": %d, \"read\": %s}%n", first, second,
        refused, read);
  }

  private static byte[] received(String bootstrap, String topic) {
    Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
    try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(List.of(new TopicPartition(topic, 0)));
      ConsumerRecords<byte[], byte[]> records = ConsumerRecords.empty();
      while (records.isEmpty()) records = consumer.poll(Duration.ofSeconds(1));
      return records.iterator().next().value();
    }
  }

  private static void check(boolean isTrue) {
    if (!isTrue) throw new AssertionError();
  }
}
