import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Runs one scenario of a transactional producer: BOOTSTRAP STORY TOPIC [NUMBER]. Each outcome is printed on a line. */
public class Transactional {
    static String bootstrap, topic;

    static KafkaProducer<String, String> producer(String transactionalId, int timeoutMs) {
        return new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", transactionalId, "transaction.timeout.ms", timeoutMs,
                "linger.ms", 0),
            new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, String isolation) {
        return new KafkaConsumer<>(
            Map.of("bootstrap.servers", bootstrap, "group.id", group, "isolation.level", isolation,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false"),
            new StringDeserializer(), new StringDeserializer());
    }

    static ProducerRecord<String, String> record(String value) {
        return new ProducerRecord<>(topic, 0, null, value);
    }

    /** Returns all records up to the end offset of this isolation level. */
    static List<String> read(String isolation) {
        var found = new ArrayList<String>();
        var partition = new TopicPartition(topic, 0);
        try (var consumer = consumer("reader", isolation)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end)
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
        }
        return found;
    }

    static void show(String isolation) {
        System.out.println(isolation + ": " + String.join(" ", read(isolation)));
    }

    static String committed(String group) {
        try (var consumer = consumer(group, "read_committed")) {
            var found = consumer.committed(java.util.Set.of(new TopicPartition(topic, 0))).get(new TopicPartition(topic, 0));
            return found == null ? "nothing" : found.offset() + " " + found.metadata();
        }
    }

    interface Step {
        void run() throws Exception;
    }

    static void attempt(String what, Step step) {
        try {
            step.run();
            System.out.println(what + ": done");
        } catch (Exception error) {
            var cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
            System.out.println(what + ": " + cause.getClass().getSimpleName());
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[2];
        switch (arguments[1]) {
            case "ends" -> ends();
            case "offsets" -> offsets();
            case "zombie" -> zombie();
            case "timeout" -> timeout();
            case "many" -> many(Integer.parseInt(arguments[3]));
            case "open" -> open(arguments[3]);
            case "read" -> read();
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    static void read() {
        show("read_committed");
        show("read_uncommitted");
    }

    static void ends() throws Exception {
        try (var producer = producer(topic + "-ends", 60_000)) {
            producer.initTransactions();
            for (int n = 0; n < 6; n++) {
                producer.beginTransaction();
                producer.send(record(n + "a"));
                producer.send(record(n + "b"));
                if (n % 2 == 1) producer.flush(); // Otherwise an abort would discard unsent records.
                if (n == 5) show("read_committed");
                if (n % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
            }
            producer.beginTransaction();
            producer.commitTransaction();
        }
        show("read_committed");
        show("read_uncommitted");
    }

    static void offsets() throws Exception {
        var partition = new TopicPartition(topic, 0);
        var group = topic + "-group";
        try (var producer = producer(topic + "-offsets", 60_000)) {
            producer.initTransactions();
            for (int n = 1; n <= 3; n++) {
                producer.beginTransaction();
                producer.send(record("n" + n));
                producer.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(n * 10, "by " + n)), new ConsumerGroupMetadata(group));
                if (n == 2) producer.abortTransaction();
                else producer.commitTransaction();
                System.out.println("committed: " + committed(group));
            }
            var unknown = new ConsumerGroupMetadata(group, 5, "nobody", Optional.empty());
            producer.beginTransaction();
            attempt("offsets of an unknown member", () -> {
                producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(99)), unknown);
                producer.commitTransaction();
            });
            attempt("abort", producer::abortTransaction);
        }
        System.out.println("committed: " + committed(group));
        show("read_committed");
    }

    static void zombie() throws Exception {
        try (var first = producer(topic + "-id", 60_000); var second = producer(topic + "-id", 60_000)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(record("of the zombie")).get();
            second.initTransactions();
            second.beginTransaction();
            second.send(record("of its successor")).get();
            attempt("send", () -> first.send(record("too late")).get());
            attempt("commit", first::commitTransaction);
            second.commitTransaction();
        }
        show("read_committed");
        show("read_uncommitted");
    }

    static void timeout() throws Exception {
        try (var producer = producer(topic + "-id", 500)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(record("slow")).get();
            while (!read("read_uncommitted").isEmpty() && endOffset("read_committed") == 0) Thread.sleep(50);
            attempt("commit", producer::commitTransaction);
        }
        try (var producer = producer(topic + "-id", 60_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(record("again"));
            producer.commitTransaction();
        }
        show("read_committed");
    }

    static long endOffset(String isolation) {
        var partition = new TopicPartition(topic, 0);
        try (var consumer = consumer("reader", isolation)) {
            return consumer.endOffsets(List.of(partition)).get(partition);
        }
    }

    static void many(int count) throws Exception {
        try (var producer = producer(topic + "-many", 60_000)) {
            producer.initTransactions();
            for (int n = 0; n < count; n++) {
                producer.beginTransaction();
                producer.send(record(String.valueOf(n)));
                if (n % 10 == 9) producer.abortTransaction();
                else producer.commitTransaction();
            }
        }
        show("read_committed");
    }

    /** Leaves a transaction open. The producer is not closed, and its process continues to run. */
    static void open(String transactionalId) throws Exception {
        var producer = producer(transactionalId, 600_000);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(record("left open")).get();
        System.out.println("open");
    }
}
