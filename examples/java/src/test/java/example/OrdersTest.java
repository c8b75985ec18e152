package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.Map;
import odradek.Odradek;
import odradek.Odradek.Cluster;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;

class OrdersTest {
  @Odradek Cluster cluster;

  private KafkaProducer<String, String> producer() {
    Map<String, Object> settings = Map.of("bootstrap.servers", cluster.bootstrap, "transactional.id", "t");
    KafkaProducer<String, String> producer =
        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    producer.initTransactions();
    producer.beginTransaction();
    return producer;
  }

  @Test
  void eachTestHasAClusterOfItsOwn(
      @Odradek(nodeIds = {1, 4}, settings = "log.retention.hours=1", topics = {"orders=3", "paid=1"}) Cluster other)
      throws Exception {
    try (KafkaProducer<String, String> producer = producer()) {
      long offset = producer.send(new ProducerRecord<>("orders", "a")).get().offset();
      producer.commitTransaction();
      assertEquals(0, offset);
    }
    cluster.await("{\"topic\": \"orders\", \"last_stable_offset\": 2}");
    other.moveLeader("orders", 2, 4);
    other.await("{\"topic\": \"orders\", \"partition\": 2, \"log_end_offset\": 0, \"timeout_ms\": 1}");
    assertThrows(IllegalStateException.class,
        () -> other.await("{\"topic\": \"orders\", \"log_end_offset\": 1, \"timeout_ms\": 1}"));
  }

  @Test
  void aCommitThatIsRefusedIsRepeated() {
    cluster.fault("""
        {"name": "busy", "match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 3}""");
    try (KafkaProducer<String, String> producer = producer()) {
      producer.send(new ProducerRecord<>("orders", "a"));
      producer.commitTransaction();
    }
    cluster.await("{\"fault\": \"busy\", \"hits\": 3}");
  }

  @Test
  void aTransactionThatNobodyEndsTimesOut() throws Exception {
    try (KafkaProducer<String, String> producer = producer()) {
      producer.send(new ProducerRecord<>("orders", "a")).get();
      cluster.advance(Duration.ofSeconds(70));
      cluster.await("{\"transaction\": \"t\", \"state\": \"CompleteAbort\"}");
      assertThrows(KafkaException.class, producer::commitTransaction);
    }
  }
}
