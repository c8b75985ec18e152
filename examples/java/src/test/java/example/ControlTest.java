package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Future;
import odradek.Odradek;
import odradek.Odradek.Cluster;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ControlTest {
  private static KafkaProducer<String, String> producer(String bootstrap, Map<String, Object> more) {
    Map<String, Object> settings = new HashMap<>(more);
    settings.put("bootstrap.servers", bootstrap);
    return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
  }

  private static void send(Cluster cluster, int count) throws Exception {
    try (KafkaProducer<String, String> producer = producer(cluster.bootstrap, Map.of("client.id", "payer"))) {
      for (int each = 0; each < count; each++) producer.send(new ProducerRecord<>("orders", "a")).get();
    }
  }

  @Test
  void aRequestIsHeldUntilItIsReleased(@Odradek(topics = "orders=1") Cluster cluster) throws Exception {
    cluster.fault("""
        {"name": "slow/1", "match": {"api": "Produce"}, "at": "received", "do": {"hold": "send"}}""");
    try (KafkaProducer<String, String> producer = producer(cluster.bootstrap, Map.of())) {
      Future<RecordMetadata> sent = producer.send(new ProducerRecord<>("orders", "a"));
      cluster.await("{\"hold\": \"send\"}");
      assertTrue(cluster.holds().contains("\"waiting\": 1"));
      assertEquals(1, cluster.release("send"));
      assertEquals(0, sent.get().offset());
    }
    assertTrue(cluster.faults().contains("\"hits\": 1"));
    cluster.clearFaults("slow/1");
    assertEquals("[]", cluster.faults());
  }

  @Test
  void aClusterBeginsWithTheRecordsOfItsSeed(
      @Odradek(seed = """
          {"topics": [{"name": "orders", "partitions": 1, "records": [{"key": "a", "value": "one tea"}]}]}""")
      Cluster cluster) {
    cluster.await("{\"topic\": \"orders\", \"partition\": 0, \"log_end_offset\": 1}");
  }

  @Test
  void aSeedIsReadFromAFile(@Odradek(seed = "@src/test/resources/seed.json") Cluster cluster) {
    cluster.await("{\"topic\": \"orders\", \"partition\": 0, \"log_end_offset\": 2}");
  }

  @Test
  void aRuleThatNothingMatchedIsTold(@Odradek Cluster cluster) {
    cluster.fault("{\"name\": \"never\", \"match\": {\"api\": \"EndTxn\"}, \"do\": {\"observe\": true}}");
    assertTrue(assertThrows(AssertionError.class, cluster::checkFaults).getMessage().contains("never"));
    cluster.clearFaults();
  }

  @Test
  void aRuleThatCouldEditNoAnswerIsTold(@Odradek(topics = "orders=1") Cluster cluster) throws Exception {
    cluster.fault("{\"name\": \"\\\"matched\\\": 0, ]}\", \"match\": {\"api\": \"Metadata\"}, \"do\": {\"observe\": true}}");
    cluster.fault("""
        {"name": "far", "match": {"api": "Metadata"}, "at": "applied", "do": {"edit": {"topics[7].errorCode": 3}}}""");
    send(cluster, 1);
    String told = assertThrows(AssertionError.class, cluster::checkFaults).getMessage();
    assertTrue(told.contains("the answer has no topics[7]") && !told.contains("observe"), told);
    cluster.clearFaults("far");
    cluster.checkFaults();
  }

  @Test
  void theClockStopsMovesAndIsSet(@Odradek Cluster cluster) {
    cluster.freeze();
    Instant now = cluster.now();
    cluster.advance(Duration.ofSeconds(1));
    assertEquals(now.plusSeconds(1), cluster.now());
    cluster.setClock(now.plusSeconds(5));
    assertEquals(now.plusSeconds(5), cluster.now());
    cluster.resume();
  }

  @Test
  void leadersAndCoordinatorsMoveAndNodesStop(
      @Odradek(nodeIds = {1, 2, 3}, topics = "orders=1", preset = "{\"name\": \"open-transaction\"}") Cluster cluster) {
    cluster.moveLeader("orders", 0, 3);
    assertTrue(cluster.partitions().contains("\"leader\": 3"));
    cluster.moveCoordinator("transaction", "t", 2);
    cluster.await("{\"transaction\": \"t\", \"state\": \"Ongoing\"}");
    assertTrue(cluster.transactions().startsWith("[{\"transaction\": \"t\""));
    cluster.stopNode(3, true);
    assertTrue(cluster.nodes().contains("\"stopped\""));
    cluster.startNode(3);
    cluster.cutOff(2, "nobody");
    cluster.clearFaults();
    cluster.putInRack(2, "r");
    cluster.putInRack(2, null);
    cluster.follow("orders", 0, 2, 0L);
    cluster.follow("orders", 0, 2, null);
  }

  @Test
  void aClusterGoesBackCrashesAndStartsAgain(@Odradek(topics = "orders=1", ttlS = 600) Cluster cluster)
      throws Exception {
    send(cluster, 2);
    cluster.checkpoint("two \"records\"");
    assertTrue(cluster.truncate("orders", 0, 0, null).contains("\"log_end_offset\": 0"));
    cluster.rewind("two \"records\"");
    cluster.lease(Duration.ofHours(1));
    assertTrue(cluster.presets().contains("aborted-tail"));
    for (Cluster each : new Cluster[] {cluster, cluster.fork()}) {
      each.await("{\"topic\": \"orders\", \"log_end_offset\": 2}");
    }
    cluster.crash();
    cluster.restart(false);
    cluster.await("{\"topic\": \"orders\", \"log_end_offset\": 2}");
  }

  @Test
  void requestsStateAndRareAnswersAreRead(
      @Odradek(topics = "orders=1", emulate = "4.0") Cluster cluster, @TempDir Path folder) throws Exception {
    Path file = folder.resolve("recording");
    cluster.record(file);
    cluster.odd(7);
    assertTrue(cluster.odd().contains("\"seed\": 7"));
    cluster.odd(0);
    cluster.preset("aborted-tail", "{\"topic\": \"paid\"}");
    send(cluster, 1);
    assertTrue(cluster.requests("api=Produce").contains("\"payer\""));
    assertEquals("[]", cluster.requests("api=EndTxn&client_id=nobody"));
    assertEquals("[]", cluster.sharePartitions());
    assertEquals("[]", cluster.groups());
    assertTrue(cluster.producers().contains("\"paid\""));
    cluster.sessions();
    cluster.connections();
    cluster.delete();
    assertTrue(new String(Files.readAllBytes(file), "ISO-8859-1").contains("orders"));
  }

  @Test
  void aClientLogsInOverTls(
      @Odradek(
              listeners = {"{\"name\": \"open\"}", "{\"name\": \"secure\", \"protocol\": \"SASL_SSL\"}"},
              users = "alice=se\"cret=1", topics = "orders=1", nodes = 2)
          Cluster cluster)
      throws Exception {
    for (String mechanism : new String[] {"PLAIN", "SCRAM-SHA-512"}) {
      String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
      Map<String, Object> settings = Map.of(
          "security.protocol", "SASL_SSL",
          "ssl.truststore.type", "PEM",
          "ssl.truststore.certificates", cluster.caCertificate(),
          "sasl.mechanism", mechanism,
          "sasl.jaas.config", "org.apache.kafka.common.security." + module
              + " required username=\"alice\" password=\"se\\\"cret=1\";");
      try (KafkaProducer<String, String> producer = producer(cluster.bootstrap("SECURE"), settings)) {
        producer.send(new ProducerRecord<>("orders", mechanism)).get();
        assertTrue(cluster.connections().contains("\"User:alice\""));
      }
    }
    send(cluster, 1);
    cluster.await("{\"topic\": \"orders\", \"log_end_offset\": 3}");
  }
}
