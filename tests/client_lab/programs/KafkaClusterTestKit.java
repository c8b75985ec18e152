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
 * `odradek serve --control` with the same number of nodes. The exchanges of its clients are recorded below RECORDINGS.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private static final Duration LIFE = Duration.ofMinutes(30);  // all tests of a class share a cluster

    private final MockFaultHandler faults = new MockFaultHandler("faults");
    private final List<Integer> nodes;
    private final Map<String, String> settings;
    private String id;
    private String bootstrap;
    private Thread recorder;

    public static class Builder {
        private final List<Integer> nodes;
        private final Map<String, String> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = List.copyOf(nodes.brokerNodes().keySet());
        }

        public Builder setConfigProp(String name, Object value) {
            settings.put(name, String.valueOf(value));
            return this;
        }

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(nodes, settings);
        }
    }

    private KafkaClusterTestKit(List<Integer> nodes, Map<String, String> settings) {
        this.nodes = nodes;
        this.settings = settings;
    }

    public void format() { }

    public void startup() {
        JsonNode told = ControlledCluster.created(settings, nodes, LIFE, Map.of());
        id = told.get("id").asText();
        bootstrap = told.get("bootstrap").asText();
        recorder = ControlledCluster.recorded(id, Path.of(System.getenv("RECORDINGS"), UUID.randomUUID().toString()));
    }

    public void waitForReadyBrokers() { }

    public String bootstrapServers() {
        return bootstrap;
    }

    /** Returns a map without brokers, because tests only compare its size with the number of replicas. */
    public Map<Integer, kafka.server.BrokerServer> brokers() {
        Map<Integer, kafka.server.BrokerServer> found = new HashMap<>();
        nodes.forEach(node -> found.put(node, null));
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
