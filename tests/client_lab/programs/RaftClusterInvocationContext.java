package org.apache.kafka.common.test.junit;

import com.fasterxml.jackson.databind.JsonNode;
import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import odradek.ControlledCluster;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.LifecycleMethodExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.mockito.Mockito;
import org.opentest4j.TestAbortedException;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.time.Duration;
import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * Replaces Kafka's class of the same name. Each test gets a cluster of `odradek serve --control`, which runs at
 * ODRADEK_CONTROL. The exchanges of its clients are recorded below RECORDINGS. A test is aborted if it needs Kafka's
 * objects in its own process.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int index) {
        return name + " [" + index + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OdradekCluster cluster = new OdradekCluster(config, isCombined);
        return List.of(
            (BeforeEachCallback) context -> {
                if (isCombined && config.clusterTypes().contains(Type.KRAFT))
                    throw new TestAbortedException("a controller in the same process makes no difference here");
                cluster.recording = recording(context);
                if (config.isAutoStart()) cluster.start();
            },
            (AfterEachCallback) context -> cluster.stop(),
            new WhatIsLacking(cluster),
            new ClusterInstanceParameterResolver(cluster)
        );
    }

    private static Path recording(ExtensionContext context) {
        String test = context.getRequiredTestClass().getSimpleName() + "." + context.getRequiredTestMethod().getName();
        String id = Integer.toHexString(context.getUniqueId().hashCode());
        return Path.of(System.getenv("RECORDINGS"), test + "-" + id);
    }

    /**
     * Aborts a failed test if it was refused an object of Kafka's broker, even within a condition that it waited for.
     */
    private record WhatIsLacking(OdradekCluster cluster)
        implements TestExecutionExceptionHandler, LifecycleMethodExecutionExceptionHandler {
        @Override
        public void handleTestExecutionException(ExtensionContext context, Throwable error) throws Throwable {
            throw cluster.lacking == null ? error : cluster.lacking;
        }

        @Override
        public void handleBeforeEachMethodExecutionException(ExtensionContext context, Throwable error)
            throws Throwable {
            throw cluster.lacking == null ? error : cluster.lacking;
        }
    }

    private static final class OdradekCluster implements ClusterInstance {
        private static final Duration LIFE = Duration.ofMinutes(10);

        private final ClusterConfig config;
        private final boolean isCombined;
        private Path recording;
        private Thread recorder;
        private String id;
        private String bootstrap;
        private boolean isStopped;
        private TestAbortedException lacking;
        private final Queue<Admin> admins = new ConcurrentLinkedQueue<>();
        private final Set<Integer> running = ConcurrentHashMap.newKeySet();

        OdradekCluster(ClusterConfig config, boolean isCombined) {
            this.config = config;
            this.isCombined = isCombined;
        }

        private TestAbortedException needsKafka(String what) {
            lacking = new TestAbortedException("needs " + what + " of Kafka in the test's process");
            return lacking;
        }

        /**
         * Returns a broker that can stop and start its node, and answers from metadata. Any other call aborts the test.
         */
        private KafkaBroker broker(int node) {
            return proxy(KafkaBroker.class, (self, method, given) -> switch (method.getName()) {
                case "metadataCache" -> cache();
                case "config" -> new Settings(node);
                case "groupCoordinator" -> proxy(GroupCoordinator.class, (coordinator, asked, arguments) -> {
                    if (!asked.getName().equals("groupMetadataTopicConfigs")) throw needsKafka(asked.getName());
                    Properties compacted = new Properties();
                    compacted.put("cleanup.policy", "compact");
                    return compacted;
                });
                case "socketServer" -> Mockito.mock(SocketServer.class, call -> {
                    if (!call.getMethod().getName().equals("boundPort")) throw needsKafka(call.getMethod().getName());
                    return brokerBoundPorts().get(node);
                });
                case "dataPlaneRequestProcessor" -> Mockito.mock(KafkaApis.class, call -> {
                    if (!call.getMethod().getName().equals("brokerId")) throw needsKafka(call.getMethod().getName());
                    return node;
                });
                case "toString" -> "broker " + node;
                case "isShutdown" -> !running.contains(node);
                case "shutdown" -> {
                    shutdownBroker(node);
                    yield null;
                }
                case "awaitShutdown" -> null;
                case "brokerState" -> running.contains(node) ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN;
                case "startup" -> {
                    startBroker(node);
                    yield null;
                }
                default -> throw needsKafka(method.getName());
            });
        }

        /**
         * An empty map, because every node is a controller and a test has no other controllers to wait for. A
         * controller that is requested by id returns the ids of topics; any other call aborts the test.
         */
        private final class NoControllers extends AbstractMap<Integer, ControllerServer> {
            @Override
            public ControllerServer get(Object id) {
                return Mockito.mock(ControllerServer.class, call -> {
                    if (!call.getMethod().getName().equals("controller")) throw needsKafka("controllers");
                    return proxy(Controller.class, (self, method, given) -> {
                        if (!method.getName().equals("findAllTopicIds")) throw needsKafka("controllers");
                        return CompletableFuture.completedFuture(topicIds());
                    });
                });
            }

            @Override
            public Set<Map.Entry<Integer, ControllerServer>> entrySet() {
                return new AbstractSet<>() {
                    @Override
                    public Iterator<Map.Entry<Integer, ControllerServer>> iterator() {
                        return new Iterator<>() {
                            @Override
                            public boolean hasNext() {
                                return false;
                            }

                            @Override
                            public Map.Entry<Integer, ControllerServer> next() {
                                throw needsKafka("controllers");
                            }
                        };
                    }

                    @Override
                    public int size() {
                        return 0;
                    }
                };
            }
        }

        /**
         * The configuration of a node, from which a test can read its settings. Requesting log directories aborts the
         * test.
         */
        private final class Settings extends KafkaConfig {
            private final boolean isMade;

            Settings(int node) {
                super(settings(node));
                isMade = true;
            }

            @Override
            public List<String> logDirs() {
                if (isMade) throw needsKafka("logDirs");
                return super.logDirs();
            }
        }

        private Map<String, String> settings(int node) {
            Map<String, String> settings = new HashMap<>(config.serverProperties());
            settings.putAll(config.perServerOverrideProperties().getOrDefault(node, Map.of()));
            settings.putAll(Map.of("process.roles", "broker", "node.id", String.valueOf(node),
                "controller.quorum.voters", "3000@localhost:1", "controller.listener.names", "CONTROLLER"));
            return settings;
        }

        private MetadataCache cache() {
            return proxy(MetadataCache.class, (self, method, given) -> switch (method.getName()) {
                case "getAliveBrokerNodes" -> running.stream()
                    .map(id -> new Node(id, "localhost", brokerBoundPorts().get(id))).toList();
                case "numPartitions" -> topic((String) given[0]).map(topic -> topic.partitions().size());
                case "getLeaderAndIsr" -> topic((String) given[0]).flatMap(topic -> topic.partitions().stream()
                    .filter(one -> one.partition() == (int) given[1])
                    .map(one -> new LeaderAndIsr(
                        one.leader() == null ? LeaderAndIsr.NO_LEADER : one.leader().id(),
                        one.isr().stream().map(Node::id).toList())).findFirst());
                default -> throw needsKafka(method.getName());
            });
        }

        private Optional<TopicDescription> topic(String name) throws InterruptedException {
            try (Admin admin = admin()) {
                return Optional.of(admin.describeTopics(List.of(name)).allTopicNames().get().get(name));
            } catch (ExecutionException unknown) {
                return Optional.empty();
            }
        }

        private Map<String, Uuid> topicIds() throws ExecutionException, InterruptedException {
            try (Admin admin = admin()) {
                return admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream()
                    .collect(Collectors.toMap(TopicListing::name, TopicListing::topicId));
            }
        }

        private static <T> T proxy(Class<T> kind, InvocationHandler handler) {
            return kind.cast(Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, handler));
        }

        @Override
        public void start() {
            if (id != null) return;
            if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT)
                throw new TestAbortedException("needs " + config.brokerSecurityProtocol());
            Map<String, String> settings = new HashMap<>(config.serverProperties());
            if ("true".equals(settings.get("remote.log.storage.system.enable")))
                throw new TestAbortedException("needs remote storage");
            Map<Integer, String> racks = new HashMap<>();
            Map<String, List<String>> ofBrokers = new HashMap<>();
            config.perServerOverrideProperties().forEach((node, own) -> own.forEach((name, value) -> {
                if (name.equals("broker.rack")) racks.put(node, value);
                else if (node < config.numBrokers())
                    ofBrokers.computeIfAbsent(name, key -> new ArrayList<>()).add(value);
                // This is a setting of the controller, which is part of every node here.
                else settings.putIfAbsent(name, value);
            }));
            ofBrokers.forEach((name, values) -> {  // All nodes share their settings.
                if (values.size() < config.numBrokers() || Set.copyOf(values).size() > 1)
                    throw new TestAbortedException("needs " + name + " of a node");
                settings.put(name, values.get(0));
            });
            List<Integer> nodes = brokerIds().stream().sorted().toList();
            JsonNode told = ControlledCluster.created(settings, nodes, LIFE, Map.of("emulate", "4.3"));
            id = told.get("id").asText();
            bootstrap = told.get("bootstrap").asText();
            told.get("nodes").forEach(node -> running.add(node.get("id").asInt()));
            recorder = ControlledCluster.recorded(id, recording);
            racks.forEach((node, rack) -> {
                if (running.contains(node)) ControlledCluster.call("POST", "/" + id + "/nodes/" + node + "/rack", Map.of("rack", rack));
            });
            setFeatures();
        }

        private void setFeatures() {
            if (config.metadataVersion() != MetadataVersion.latestTesting()
                && config.metadataVersion() != MetadataVersion.latestProduction())
                throw new TestAbortedException("needs metadata.version " + config.metadataVersion());
            if (config.features().isEmpty()) return;
            try (Admin admin = admin()) {
                Map<String, FeatureUpdate> updates = new HashMap<>();
                var now = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
                config.features().forEach((feature, level) -> {
                    var levels = now.get(feature.featureName());
                    short has = levels == null ? 0 : levels.maxVersionLevel();
                    if (has == level) return;
                    var kind = has < level
                        ? FeatureUpdate.UpgradeType.UPGRADE : FeatureUpdate.UpgradeType.SAFE_DOWNGRADE;
                    updates.put(feature.featureName(), new FeatureUpdate(level, kind));
                });
                if (!updates.isEmpty()) admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
            } catch (ExecutionException error) {
                throw new TestAbortedException("needs features " + config.features() + ": " + error.getCause());
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Admin admin(Map<String, Object> settings, boolean usingBootstrapControllers) {
            Admin made = ClusterInstance.super.admin(settings, usingBootstrapControllers);
            admins.add(made);
            return made;
        }

        @Override
        public void stop() {
            isStopped = true;
            if (lacking != null) admins.forEach(admin -> admin.close(Duration.ZERO));  // Aborted tests leave them open.
            if (id == null) return;
            ControlledCluster.call("DELETE", "/" + id, null);
            try {
                recorder.join(10_000);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            id = null;
        }

        @Override
        public void shutdownBroker(int node) {
            if (!running.contains(node)) return;
            ControlledCluster.call("POST", "/" + id + "/nodes/" + node + "/stop", Map.of("clean", true));
            running.remove(node);
        }

        @Override
        public void startBroker(int node) {
            if (running.contains(node)) return;
            ControlledCluster.call("POST", "/" + id + "/nodes/" + node + "/start", Map.of());
            running.add(node);
        }

        @Override public boolean started() { return id != null; }
        @Override public boolean stopped() { return isStopped; }
        @Override public Type type() { return isCombined ? Type.CO_KRAFT : Type.KRAFT; }
        @Override public ClusterConfig config() { return config; }
        @Override public String bootstrapServers() { return bootstrap; }
        @Override public String bootstrapControllers() { throw needsKafka("controllers"); }
        @Override public ListenerName clientListener() { return config.brokerListenerName(); }
        @Override public ListenerName controllerListenerName() { return config.controllerListenerName(); }
        @Override public Map<Integer, KafkaBroker> brokers() {
            return brokerIds().stream().collect(Collectors.toMap(id -> id, this::broker));
        }
        @Override public Map<Integer, KafkaBroker> aliveBrokers() {
            return running.stream().collect(Collectors.toMap(id -> id, this::broker));
        }
        @Override public Map<Integer, ControllerServer> controllers() { return new NoControllers(); }
        @Override public Set<Integer> controllerIds() { return Set.of(0); }
        @Override public void waitForReadyBrokers() { }
        @Override public Optional<FaultHandlerException> firstFatalException() { return Optional.empty(); }
        @Override public Optional<FaultHandlerException> firstNonFatalException() { return Optional.empty(); }
        @Override public void ensureConsistentMetadata() { }
        @Override public Set<Integer> brokerIds() {
            return IntStream.range(0, config.numBrokers()).boxed().collect(Collectors.toSet());
        }
        @Override public List<Integer> brokerBoundPorts() {
            return Stream.of(bootstrap.split(",")).map(each -> Integer.valueOf(each.split(":")[1])).toList();
        }
        @Override public String clusterId() {
            try (Admin admin = admin()) {
                return admin.describeCluster().clusterId().get();
            } catch (ExecutionException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        @Override public Set<GroupProtocol> supportedGroupProtocols() {
            String protocols = config.serverProperties()
                .getOrDefault("group.coordinator.rebalance.protocols", "consumer");
            boolean isOld = config.features().entrySet().stream()
                .anyMatch(each -> each.getKey().featureName().equals("group.version") && each.getValue() == 0);
            return protocols.contains("consumer") && !isOld
                ? EnumSet.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : EnumSet.of(GroupProtocol.CLASSIC);
        }

        @Override
        public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
            waitTopic(topic, partitions);
        }

        @Override
        public void waitTopicDeletion(String topic) throws InterruptedException {
            waitTopic(topic, 0);
        }

        private void waitTopic(String topic, int partitions) throws InterruptedException {
            try (Admin admin = admin()) {
                TestUtils.waitForCondition(() -> {
                    try {
                        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size()
                            == partitions;
                    } catch (ExecutionException error) {
                        return partitions == 0;
                    }
                }, 30_000, topic + " should have " + partitions + " partitions");
            }
        }

        @Override
        public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries)
            throws InterruptedException {
            try (Admin admin = admin()) {
                TestUtils.waitForCondition(() -> {
                    try {
                        return admin.describeAcls(filter).values().get().stream().map(AclBinding::entry)
                            .collect(Collectors.toSet()).equals(Set.copyOf(entries));
                    } catch (ExecutionException error) {
                        return false;
                    }
                }, 30_000, "ACLs of " + filter);
            }
        }
    }
}
