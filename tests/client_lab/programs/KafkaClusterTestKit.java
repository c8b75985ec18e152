package org.apache.kafka.common.test;

import com.fasterxml.jackson.databind.JsonNode;
import odradek.ControlledCluster;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * Replaces Kafka's class of the same name in the integration tests of Kafka Streams. Each cluster is a cluster of
 * `odradek serve --control` with one node. The exchanges of its clients are recorded below RECORDINGS.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final int NODE = 0;
    private static final Duration LIFE = Duration.ofMinutes(30);  // all tests of a class share a cluster

    private final MockFaultHandler faults = new MockFaultHandler("faults");
    private final Map<String, String> settings;
    private String id;
    private String bootstrap;
    private Thread recorder;

    public static class Builder {
        private final Map<String, String> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) { }

        public Builder setConfigProp(String name, Object value) {
            settings.put(name, String.valueOf(value));
            return this;
        }

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(settings);
        }
    }

    private KafkaClusterTestKit(Map<String, String> settings) {
        this.settings = settings;
    }

    public void format() { }

    public void startup() {
        JsonNode told = ControlledCluster.created(settings, List.of(NODE), LIFE, Map.of());
        id = told.get("id").asText();
        bootstrap = told.get("bootstrap").asText();
        recorder = ControlledCluster.recorded(id, Path.of(System.getenv("RECORDINGS"), UUID.randomUUID().toString()));
    }

    public void waitForReadyBrokers() { }

    public String bootstrapServers() {
        return bootstrap;
    }

    /** Returns a map with one entry, because tests only compare its size with the number of replicas. */
    public Map<Integer, kafka.server.BrokerServer> brokers() {
        Map<Integer, kafka.server.BrokerServer> found = new HashMap<>();
        found.put(NODE, null);
        return found;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    @Override
    public void close() throws InterruptedException {
        if (id == null) return;
        ControlledCluster.call("DELETE", "/" + id, null);
        recorder.join(10_000);
        id = null;
    }
}
