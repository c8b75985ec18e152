import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import sun.misc.Signal;

/**
 * Copies a topic in transactions with kafka-clients until SIGTERM, as tests/crash/copier.py does. The only argument is
 * the job as JSON. Before each step, a JSON line that describes the step is written to the journal. Every record
 * must arrive exactly once between two of these events: a start, a rebalance, a seek.
 */
public class Copier implements ConsumerRebalanceListener {
    static final int GAVE_UP = 3;
    static final long IDLE_NS = 300_000_000L; // A transaction ends early if no new record arrives for this long.
    static final ObjectMapper JSON = new ObjectMapper();

    final JsonNode job;
    final String name;
    final Random random;
    final FileOutputStream journal;
    final KafkaConsumer<String, String> consumer;
    final KafkaProducer<String, String> producer;
    final Map<TopicPartition, Long> begin = new HashMap<>(); // first offsets of this transaction
    final Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>(); // offsets after its last records
    final Map<TopicPartition, Long> position = new HashMap<>(); // next expected offset, since the assignment
    volatile boolean isOver;
    String transaction;
    int count;

    Copier(JsonNode job) throws IOException {
        this.job = job;
        name = text("transactional_id");
        random = new Random(job.get("seed").asLong());
        journal = new FileOutputStream(text("journal"), true);
        var common = Map.<String, Object>of("bootstrap.servers", text("bootstrap"), "client.id", name,
            "reconnect.backoff.ms", 10, "reconnect.backoff.max.ms", 200, "retry.backoff.ms", 20);
        var reads = new HashMap<>(common);
        reads.putAll(Map.of("group.id", text("group"), "group.protocol", text("protocol"), "enable.auto.commit", false,
            "auto.offset.reset", "earliest", "isolation.level", "read_committed", "max.poll.records", 50));
        if (text("protocol").equals("classic"))
            reads.putAll(Map.of("session.timeout.ms", 2_000, "heartbeat.interval.ms", 300));
        consumer = new KafkaConsumer<>(reads, new StringDeserializer(), new StringDeserializer());
        var writes = new HashMap<>(common);
        writes.putAll(Map.of("transactional.id", name, "transaction.timeout.ms", 60_000, "linger.ms", 2));
        producer = new KafkaProducer<>(writes, new StringSerializer(), new StringSerializer());
    }

    String text(String field) {
        return job.get(field).asText();
    }

    void run() {
        persist(producer::initTransactions);
        consumer.subscribe(List.of(text("source")), this);
        while (!isOver) copySome();
        abort();
        consumer.close();
        producer.close();
    }

    /** Copies records in one transaction: up to per_transaction records, or fewer if no more arrive. */
    void copySome() {
        try {
            int size = 0, most = job.get("per_transaction").asInt();
            long lastAt = System.nanoTime();
            while (size < most && !isOver) {
                var records = consumer.poll(Duration.ofMillis(50));
                if (transaction == null) size = 0; // A rebalance has aborted the transaction.
                if (records.isEmpty() && size > 0 && System.nanoTime() - lastAt > IDLE_NS) break;
                for (var record : records) {
                    copy(record);
                    size++;
                    lastAt = System.nanoTime();
                }
            }
            if (transaction == null) return;
            if (!isOver && random.nextDouble() >= job.get("aborts").asDouble()) {
                commit();
                return;
            }
        } catch (KafkaException refused) {
            System.err.println("aborts: " + refused);
        }
        abort(); // This is refused if the producer is in a fatal state.
        rewind();
    }

    void copy(ConsumerRecord<String, String> record) {
        var partition = new TopicPartition(record.topic(), record.partition());
        long expected = position.getOrDefault(partition, record.offset());
        if (record.offset() != expected)
            throw new AssertionError("offset " + record.offset() + " of " + partition + ", not " + expected);
        position.put(partition, record.offset() + 1);
        if (transaction == null) {
            transaction = name + " of " + ProcessHandle.current().pid() + ", " + ++count;
            producer.beginTransaction();
        }
        begin.putIfAbsent(partition, record.offset());
        next.put(partition, new OffsetAndMetadata(record.offset() + 1));
        var value = "copy of " + record.value();
        note("send", Map.of("partition", record.partition(), "value", value));
        producer.send(new ProducerRecord<>(text("target"), record.partition(), record.key(), value));
    }

    void commit() {
        var member = consumer.groupMetadata();
        persist(() -> producer.sendOffsetsToTransaction(next, member));
        note("ask", Map.of());
        persist(producer::commitTransaction);
        note("answer", Map.of("committed", true));
        forget();
    }

    void abort() {
        if (transaction == null) return;
        persist(producer::abortTransaction);
        note("answer", Map.of("committed", false));
        transaction = null;
    }

    void rewind() {
        begin.forEach((partition, offset) -> {
            if (!consumer.assignment().contains(partition)) return;
            consumer.seek(partition, offset);
            position.put(partition, offset);
        });
        forget();
    }

    void forget() {
        transaction = null;
        begin.clear();
        next.clear();
    }

    /** Another member may continue from the committed offsets, so everything that is not committed must be aborted. */
    @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        abort();
        begin.keySet().removeAll(partitions);
        position.keySet().removeAll(partitions);
        rewind();
    }

    @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

    static void persist(Runnable step) {
        while (true) {
            try {
                step.run();
                return;
            } catch (TimeoutException again) {
                System.err.println("again: " + again);
            }
        }
    }

    void note(String event, Map<String, Object> more) {
        var row = JSON.createObjectNode().put("at", System.nanoTime()).put("event", event);
        row.put("transaction", transaction);
        more.forEach(row::putPOJO);
        try {
            journal.write((row + "\n").getBytes());
        } catch (IOException full) {
            throw new UncheckedIOException(full);
        }
    }

    public static void main(String[] words) throws IOException {
        var copier = new Copier(JSON.readTree(words[0]));
        Signal.handle(new Signal("TERM"), signal -> copier.isOver = true);
        try {
            copier.run();
        } catch (KafkaException end) {
            end.printStackTrace();
            System.exit(GAVE_UP);
        }
    }
}
