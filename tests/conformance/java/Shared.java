import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Runs one scenario of share consumers: BOOTSTRAP STORY TOPIC. Each outcome is printed on a line. */
public class Shared {
    static final int PATIENCE_S = 30;
    static final String LOCK = "share.record.lock.duration.ms";

    final String bootstrap, topic, group;
    final List<Member> members = new ArrayList<>();

    Shared(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = topic + "-g";
    }

    final class Member {
        final KafkaShareConsumer<String, String> consumer;
        final List<ConsumerRecord<String, String>> records = new ArrayList<>();
        final TreeSet<String> told = new TreeSet<>();

        Member(Object... settings) {
            var all = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
                "share.acknowledgement.mode", "explicit"));
            for (int at = 0; at < settings.length; at += 2) all.put((String) settings[at], settings[at + 1]);
            consumer = new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            consumer.setAcknowledgementCommitCallback((offsets, error) ->
                told.add(error == null ? "acknowledged" : error.getClass().getSimpleName()));
            consumer.subscribe(List.of(topic));
            members.add(this);
        }

        /** Returns the records of one poll. */
        List<ConsumerRecord<String, String>> poll(int ms) {
            var found = new ArrayList<ConsumerRecord<String, String>>();
            consumer.poll(Duration.ofMillis(ms)).forEach(found::add);
            records.addAll(found);
            return found;
        }

        /** Returns the records of the first poll that is not empty. */
        List<ConsumerRecord<String, String>> first() {
            var deadline = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
            while (true) {
                var found = poll(2_000); // If a shorter poll is repeated, it may fetch more records than it returns.
                if (!found.isEmpty()) return found;
                if (System.nanoTime() > deadline) throw new IllegalStateException("no records in time");
            }
        }

        void all(List<ConsumerRecord<String, String>> taken, AcknowledgeType type) {
            taken.forEach(each -> consumer.acknowledge(each, type));
        }

        /** Commits, and returns the outcome, which is the same for all partitions here. */
        String commit() {
            var outcomes = new TreeSet<String>();
            consumer.commitSync().values().forEach(error ->
                outcomes.add(error.map(each -> each.getClass().getSimpleName()).orElse("done")));
            return String.join(",", outcomes);
        }

        void close() {
            members.remove(this);
            consumer.close();
        }
    }

    static String shown(List<ConsumerRecord<String, String>> records) {
        var shown = new ArrayList<String>();
        for (var each : records) {
            short count = each.deliveryCount().orElse((short) 0);
            shown.add(each.value() + (count == 1 ? "" : " (" + count + ")"));
        }
        return String.join(" ", shown);
    }

    static void say(String what, Object outcome) {
        System.out.println(what + ": " + outcome);
    }

    interface Step {
        Object run() throws Exception;
    }

    static void attempt(String what, Step step) {
        try {
            say(what, step.run());
        } catch (Exception error) {
            say(what, error.getClass().getSimpleName());
        }
    }

    void configure(String... settings) throws Exception {
        var operations = new ArrayList<AlterConfigOp>();
        var all = new TreeMap<String, String>(Map.of("share.auto.offset.reset", "earliest",
            LOCK, "30000")); // so that a slow machine does not give the records to other members
        for (int at = 0; at < settings.length; at += 2) all.put(settings[at], settings[at + 1]);
        all.forEach((name, value) -> operations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), operations)).all().get();
        }
        Thread.sleep(300); // Kafka's broker applies the settings a moment later.
    }

    KafkaProducer<String, String> producer(Object... settings) {
        var all = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 60_000));
        for (int at = 0; at < settings.length; at += 2) all.put((String) settings[at], settings[at + 1]);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    /** Writes the values as one batch. */
    void produce(String... values) {
        try (var producer = producer()) {
            for (var value : values) producer.send(new ProducerRecord<>(topic, 0, null, value));
            producer.flush();
        }
    }

    void ten() {
        produce("0", "1", "2", "3", "4", "5", "6", "7", "8", "9");
    }

    public static void main(String[] arguments) throws Exception {
        var story = new Shared(arguments[0], arguments[2]);
        try {
            switch (arguments[1]) {
                case "implicit" -> story.implicit();
                case "explicit" -> story.explicit();
                case "renew" -> story.renew();
                case "expiry" -> story.expiry();
                case "recordLimit" -> story.recordLimit();
                case "batchOptimized" -> story.batchOptimized();
                case "deadLetters" -> story.deadLetters();
                case "committed" -> story.isolation("read_committed");
                case "uncommitted" -> story.isolation("read_uncommitted");
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        } finally {
            List.copyOf(story.members).forEach(Member::close);
        }
    }

    /** The next poll, a commit or closing the consumer accepts the polled records. */
    void implicit() throws Exception {
        configure();
        ten();
        var first = new Member("share.acknowledgement.mode", "implicit");
        say("polled", shown(first.first()));
        attempt("one by one", () -> {
            first.consumer.acknowledge(first.records.get(0));
            return "done";
        });
        say("polled again", shown(first.poll(300)));
        produce("10", "11");
        say("the next", shown(first.first()));
        say("committed", first.commit());
        produce("12");
        say("the last", shown(first.first()));
        first.close();
        say("told", first.told);
        produce("13");
        say("another member", shown(new Member("share.acknowledgement.mode", "implicit").first()));
    }

    void explicit() throws Exception {
        configure();
        ten();
        var first = new Member();
        var taken = first.first();
        say("polled", shown(taken));
        attempt("polled without acknowledgements", () -> first.poll(100));
        first.consumer.acknowledge(taken.get(0), AcknowledgeType.ACCEPT);
        first.consumer.acknowledge(taken.get(1), AcknowledgeType.RELEASE);
        first.consumer.acknowledge(taken.get(2), AcknowledgeType.REJECT);
        first.consumer.acknowledge(taken.get(3), AcknowledgeType.RELEASE);
        attempt("of a record that was not polled", () -> {
            first.consumer.acknowledge(topic, 0, 77, AcknowledgeType.ACCEPT);
            return "done";
        });
        first.all(taken.subList(4, 10), AcknowledgeType.ACCEPT);
        say("committed", first.commit());
        var again = first.first();
        say("released", shown(again));
        first.all(again, AcknowledgeType.RELEASE);
        first.close();
        var second = new Member();
        var rest = second.first();
        say("released by the end", shown(rest));
        second.all(rest, AcknowledgeType.ACCEPT);
        say("committed", second.commit());
        produce("10");
        say("the next", shown(second.first()));
        say("told", second.told);
    }

    /** Renews locks of 1.5 s repeatedly, for longer than a lock lasts. */
    void renew() throws Exception {
        configure(LOCK, "1500");
        ten();
        var first = new Member();
        var taken = first.first();
        say("lock", first.consumer.acquisitionLockTimeoutMs().orElse(-1));
        var second = new Member();
        first.all(taken, AcknowledgeType.RENEW);
        say("renewed", first.commit());
        for (int round = 0; round < 5; round++) {
            Thread.sleep(500);
            if (!second.poll(50).isEmpty()) throw new IllegalStateException("delivered although renewed");
            var kept = first.poll(50);
            if (kept.isEmpty()) kept = taken;
            first.all(kept, AcknowledgeType.RENEW);
            first.commit();
        }
        say("kept", shown(taken));
        first.all(first.poll(50), AcknowledgeType.ACCEPT);
        say("accepted", first.commit());
        produce("10");
        say("the next", shown(second.first()));
        say("told", first.told);
    }

    void expiry() throws Exception {
        configure(LOCK, "1500");
        ten();
        var first = new Member();
        var taken = first.first();
        var second = new Member();
        say("the other", shown(second.first()));
        first.all(taken, AcknowledgeType.ACCEPT);
        say("too late", first.commit());
        second.all(second.records, AcknowledgeType.ACCEPT);
        say("in time", second.commit());
    }

    /** A member never gets more records than it requested. Other members can get the rest of the batch. */
    void recordLimit() throws Exception {
        configure();
        ten();
        var limited = new Member("share.acquire.mode", "record_limit", "max.poll.records", 3);
        var taken = limited.first();
        say("three", shown(taken));
        say("the others", shown(new Member().first()));
        limited.all(taken, AcknowledgeType.ACCEPT);
        say("committed", limited.commit());
    }

    /** A member gets complete batches. */
    void batchOptimized() throws Exception {
        configure();
        ten();
        produce("10", "11");
        var first = new Member("share.acquire.mode", "batch_optimized", "max.poll.records", 3);
        var taken = first.first();
        say("a batch", shown(taken));
        say("the others", shown(new Member().first()));
        first.all(taken, AcknowledgeType.ACCEPT);
        say("committed", first.commit());
    }

    /** Rejected records, and records that are released too often, are written to the dead-letter queue of the group. */
    void deadLetters() throws Exception {
        var queue = "dlq." + topic;
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var marked = new NewTopic(queue, 1, (short) 1).configs(Map.of("errors.deadletterqueue.group.enable", "true"));
            admin.createTopics(List.of(marked)).all().get();
        }
        configure("errors.deadletterqueue.topic.name", queue, "errors.deadletterqueue.copy.record.enable", "true",
            "share.delivery.count.limit", "2");
        ten();
        var member = new Member();
        var taken = member.first();
        member.all(taken.subList(0, 3), AcknowledgeType.REJECT);
        member.all(taken.subList(3, 6), AcknowledgeType.RELEASE);
        member.all(taken.subList(6, 10), AcknowledgeType.ACCEPT);
        say("committed", member.commit());
        var again = member.first();
        say("again", shown(again));
        member.all(again, AcknowledgeType.RELEASE);
        say("committed", member.commit());
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap);
        try (var reader = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            var place = new TopicPartition(queue, 0);
            reader.assign(List.of(place));
            reader.seekToBeginning(List.of(place));
            var deadline = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
            int read = 0;
            while (read < 6 && System.nanoTime() < deadline) {
                for (var copy : reader.poll(Duration.ofMillis(200))) {
                    read++;
                    say(copy.value(), header(copy, "offset") + ", " + header(copy, "delivery.count") + ", "
                        + header(copy, "message"));
                }
            }
        }
    }

    static String header(ConsumerRecord<String, String> record, String name) {
        return new String(record.headers().lastHeader("__dlq.errors." + name).value(), StandardCharsets.UTF_8);
    }

    /** Reads an aborted transaction, a committed transaction, and an open transaction that is committed later. */
    void isolation(String level) throws Exception {
        configure("share.isolation.level", level);
        try (var producer = producer("transactional.id", topic)) {
            producer.initTransactions();
            begin(producer, "aborted");
            producer.abortTransaction();
            begin(producer, "committed");
            producer.commitTransaction();
            begin(producer, "open");
            var member = new Member("share.acknowledgement.mode", "implicit");
            member.first();
            for (int round = 0; round < 3; round++) member.poll(100);
            say("while it is open", shown(member.records));
            producer.commitTransaction();
            produce("last");
            while (!member.records.get(member.records.size() - 1).value().equals("last")) member.first();
            say("in the end", shown(member.records));
        }
    }

    void begin(KafkaProducer<String, String> producer, String value) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, value));
        producer.flush();
    }
}
