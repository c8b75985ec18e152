import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs one scenario of consumers in a group: BOOTSTRAP STORY TOPIC MORE. Each outcome is printed on a line. TOPIC has
 * six partitions with one record in each. The name of MORE starts with that of TOPIC; it has two empty partitions.
 */
public class Grouped {
    static final int PATIENCE_S = 30;

    final String bootstrap, topic, more, group;
    final List<Member> members = new ArrayList<>();

    Grouped(String bootstrap, String topic, String more) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.more = more;
        this.group = topic + "-g";
    }

    final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final List<ConsumerRecord<String, String>> records = new ArrayList<>();
        int lost;

        Member(Map<String, Object> settings) {
            var all = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
            all.putAll(settings);
            consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            members.add(this);
        }

        Member subscribed(String... topics) {
            consumer.subscribe(Arrays.asList(topics), this);
            return this;
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

        @Override public void onPartitionsLost(Collection<TopicPartition> partitions) {
            lost += partitions.size();
        }

        void poll() {
            consumer.poll(Duration.ofMillis(20)).forEach(records::add);
        }

        int count() {
            return consumer.assignment().size();
        }

        Map<TopicPartition, OffsetAndMetadata> ends() {
            var ends = new HashMap<TopicPartition, OffsetAndMetadata>();
            for (var partition : consumer.assignment()) ends.put(partition, new OffsetAndMetadata(1, "read"));
            return ends;
        }

        void close() {
            members.remove(this);
            consumer.close();
        }

        void leave() {
            members.remove(this);
            consumer.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        }
    }

    Member consumer(Object... settings) {
        return member("consumer", settings);
    }

    Member classic() {
        return member("classic", "heartbeat.interval.ms", 100);
    }

    Member member(String protocol, Object... settings) {
        var all = new HashMap<String, Object>(Map.of("group.protocol", protocol));
        for (int at = 0; at < settings.length; at += 2) all.put((String) settings[at], settings[at + 1]);
        return new Member(all);
    }

    /** Polls with all members until the condition holds. */
    void until(String what, BooleanSupplier isSo) {
        var deadline = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("not in time: " + what + ", but " + counts());
            List.copyOf(members).forEach(Member::poll);
        }
        System.out.println(what + ": " + counts());
    }

    String counts() {
        var counts = new ArrayList<String>();
        for (var member : members) counts.add(String.valueOf(member.count()));
        return String.join("+", counts);
    }

    void spread(String what, int... wanted) {
        until(what, () -> Arrays.equals(members.stream().mapToInt(Member::count).toArray(), wanted));
    }

    String committed(Member asking) {
        var all = new TreeMap<Integer, Long>();
        var partitions = new java.util.HashSet<TopicPartition>();
        for (int index = 0; index < 6; index++) partitions.add(new TopicPartition(topic, index));
        asking.consumer.committed(partitions).forEach((partition, offset) -> {
            if (offset != null) all.put(partition.partition(), offset.offset());
        });
        return all.toString();
    }

    interface Step {
        void run() throws Exception;
    }

    static void attempt(String what, Step step) {
        try {
            step.run();
            System.out.println(what + ": done");
        } catch (Exception error) {
            System.out.println(what + ": " + error.getClass().getSimpleName());
        }
    }

    public static void main(String[] arguments) throws Exception {
        var story = new Grouped(arguments[0], arguments[2], arguments[3]);
        try {
            switch (arguments[1]) {
                case "rebalance" -> story.rebalance();
                case "pattern" -> story.pattern();
                case "statics" -> story.statics();
                case "pause" -> story.pause();
                case "upgrade" -> story.upgrade();
                case "downgrade" -> story.downgrade();
                case "transactions" -> story.transactions();
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        } finally {
            List.copyOf(story.members).forEach(Member::close);
        }
    }

    void rebalance() {
        var first = consumer().subscribed(topic);
        spread("alone", 6);
        until("all records", () -> first.records.size() == 6);
        first.consumer.commitSync(first.ends());
        System.out.println("committed: " + committed(first));
        var second = consumer().subscribed(topic);
        spread("two", 3, 3);
        attempt("both commit", () -> {
            first.consumer.commitSync(first.ends());
            second.consumer.commitSync(second.ends());
        });
        second.close();
        spread("alone again", 6);
        consumer("group.remote.assignor", "range").subscribed(topic);
        spread("range", 3, 3);
        System.out.println("records: " + first.records.size());
    }

    /**
     * Subscribes with a SubscriptionPattern, which the broker resolves: first to both topics, then only to the second
     * one.
     */
    void pattern() {
        var first = consumer();
        first.consumer.subscribe(new SubscriptionPattern(topic + ".*"), first);
        spread("both topics", 8);
        first.consumer.subscribe(new SubscriptionPattern(topic + "-m..e.*"), first);
        spread("the other topic", 2);
        var wrong = consumer();
        wrong.consumer.subscribe(new SubscriptionPattern("["));
        attempt("a wrong pattern", () -> until("never", () -> false));
        members.remove(wrong);
        wrong.consumer.close();
    }

    void statics() {
        var first = consumer("group.instance.id", "one").subscribed(topic);
        var second = consumer("group.instance.id", "two").subscribed(topic);
        spread("two", 3, 3);
        var kept = Set.copyOf(first.consumer.assignment());
        var late = consumer("group.instance.id", "two").subscribed(topic);
        attempt("an instance that is in use", () -> until("never", () -> false));
        members.remove(late);
        late.consumer.close();
        first.close(); // A static member keeps its partitions for a while.
        spread("its partitions are kept", 3);
        var again = consumer("group.instance.id", "one").subscribed(topic);
        until("it is back", () -> again.count() == 3);
        System.out.println("the same partitions: " + kept.equals(again.consumer.assignment()));
        again.leave();
        spread("it has left", 6);
    }

    /** A member that does not poll for longer than max.poll.interval.ms leaves the group on its own, and may rejoin. */
    void pause() throws Exception {
        var slow = consumer("max.poll.interval.ms", 1_500).subscribed(topic);
        spread("alone", 6);
        var quick = consumer().subscribed(topic);
        spread("two", 3, 3);
        var stale = slow.ends();
        members.remove(slow);
        spread("it is away", 6);
        attempt("it commits", () -> slow.consumer.commitSync(stale));
        members.add(slow);
        spread("it is back", 3, 3);
        System.out.println("lost: " + slow.lost);
        attempt("it commits", () -> slow.consumer.commitSync(slow.ends()));
        quick.close();
    }

    /** Upgrades a classic group to a consumer group while its members run. */
    void upgrade() {
        var first = classic().subscribed(topic);
        var second = classic().subscribed(topic);
        spread("classic", 3, 3);
        var third = consumer().subscribed(topic);
        spread("mixed", 2, 2, 2);
        attempt("all commit", () -> {
            for (var each : List.of(first, second, third)) each.consumer.commitSync(each.ends());
        });
        first.close();
        spread("one classic is left", 3, 3);
        second.close();
        spread("upgraded", 6);
        System.out.println("committed: " + committed(third));
    }

    /** Downgrades a consumer group to a classic group while its members run. */
    void downgrade() {
        var first = consumer().subscribed(topic);
        spread("consumer", 6);
        classic().subscribed(topic);
        spread("mixed", 3, 3);
        first.close();
        spread("downgraded", 6);
        classic().subscribed(topic);
        spread("two", 3, 3);
    }

    void transactions() {
        var first = consumer().subscribed(topic);
        until("all records", () -> first.records.size() == 6);
        var offsets = first.ends();
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap, "transactional.id", topic + "-id");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            var old = first.consumer.groupMetadata();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(more, 0, null, "aborted"));
            producer.sendOffsetsToTransaction(offsets, old);
            producer.abortTransaction();
            System.out.println("aborted: " + committed(first));
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(more, 0, null, "committed"));
            producer.sendOffsetsToTransaction(offsets, old);
            producer.commitTransaction();
            System.out.println("committed: " + committed(first));
            consumer().subscribed(topic);
            spread("two", 3, 3);
            commit(producer, "at an epoch before that of its partitions", offsets,
                new ConsumerGroupMetadata(group, 0, old.memberId(), Optional.empty()));
            commit(producer, "at an epoch to come", offsets,
                new ConsumerGroupMetadata(group, first.consumer.groupMetadata().generationId() + 5, old.memberId(), Optional.empty()));
            commit(producer, "of an unknown member", offsets, new ConsumerGroupMetadata(group, 2, "nobody", Optional.empty()));
            commit(producer, "of nobody", offsets, new ConsumerGroupMetadata(group));
            commit(producer, "at the epoch", first.ends(), first.consumer.groupMetadata());
        }
    }

    void commit(KafkaProducer<String, String> producer, String what, Map<TopicPartition, OffsetAndMetadata> offsets,
                ConsumerGroupMetadata by) {
        producer.beginTransaction();
        attempt(what, () -> {
            producer.sendOffsetsToTransaction(offsets, by);
            producer.commitTransaction();
            return;
        });
        try {
            producer.abortTransaction();
        } catch (IllegalStateException committed) {
            // The transaction is committed, so there is nothing to abort.
        }
    }
}
