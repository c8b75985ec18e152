import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Small applications with Java's producer and consumer. The last line that is printed is the application's result.
 */
public class KafkaClients {
    static final String AT = System.getenv("ODRADEK_BOOTSTRAP");

    static KafkaConsumer<String, String> subscribed(Map<String, Object> more) {
        var settings = new HashMap<String, Object>(more);
        settings.putAll(Map.of("bootstrap.servers", AT, "group.id", "g", "enable.auto.commit", false));
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    static KafkaConsumer<String, String> joined(Map<String, Object> more) {
        var consumer = subscribed(more);
        while (consumer.assignment().isEmpty()) consumer.poll(Duration.ofMillis(10));
        return consumer;
    }

    static void poll(KafkaConsumer<String, String> consumer, long ms) {
        var end = System.currentTimeMillis() + ms;
        while (System.currentTimeMillis() < end) consumer.poll(Duration.ofMillis(100));
    }

    static String abort() {
        var settings = Map.<String, Object>of("bootstrap.servers", AT, "transactional.id", "t");
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("orders", "a"));
        producer.flush();
        producer.abortTransaction();
        return "aborted";
    }

    static String leaveAndJoin() throws InterruptedException {
        var consumer = joined(Map.of("group.protocol", "consumer"));
        Thread.sleep(700);  // Meanwhile a heartbeat confirms the assignment.
        consumer.unsubscribe();
        consumer.subscribe(List.of("orders"));
        poll(consumer, 3000);
        return "joined";
    }

    static String commitAmongHeartbeats() {
        var consumer = joined(Map.of("heartbeat.interval.ms", 300, "group.instance.id", "i"));
        consumer.commitAsync(Map.of(new TopicPartition("orders", 0), new OffsetAndMetadata(0)), null);
        poll(consumer, 4000);
        return "polled";
    }

    /** Leaves the group and joins it again as a static member. Requests time out after a second. */
    static String leaveAndJoinStatically() {
        var impatient = Map.<String, Object>of("request.timeout.ms", 1000, "max.poll.interval.ms", 1000);
        var settings = new HashMap<>(impatient);
        settings.putAll(Map.of("group.protocol", "classic", "group.instance.id", "i", "heartbeat.interval.ms", 300));
        var consumer = joined(settings);
        consumer.unsubscribe();
        consumer.subscribe(List.of("orders"));
        poll(consumer, 15000);
        return "polled";
    }

    /** Closes a second member before it has received its member id, then triggers a rebalance in the first member. */
    static String closeWhileJoining() throws InterruptedException {
        var settings = Map.<String, Object>of("group.protocol", "classic", "auto.offset.reset", "earliest");
        var consumer = joined(settings);
        var second = subscribed(settings);
        while (consumer.poll(Duration.ofMillis(10)).isEmpty()) second.poll(Duration.ofMillis(10));
        var closing = new Thread(second::close);
        closing.start();
        Thread.sleep(500);  // The member id arrives while the member closes.
        consumer.commitSync();
        closing.join();
        consumer.enforceRebalance();
        poll(consumer, 8000);
        return consumer.assignment().isEmpty() ? "waits for a member that is gone" : "has joined again";
    }

    /** Aborts a transaction whose batch is not answered in time, then commits another transaction. */
    static String abortAndCommit() {
        var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", AT, "transactional.id", "t"));
        settings.putAll(Map.of("delivery.timeout.ms", 2000, "request.timeout.ms", 2000, "linger.ms", 0));
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("orders", "aborted"));
        try {
            producer.commitTransaction();
        } catch (KafkaException unanswered) {
            producer.abortTransaction();
        }
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("orders", "committed"));
        producer.commitTransaction();
        return "committed";
    }

    /** Sends to two partitions in turn, each record after the response to the previous one. */
    static String sendInTurn() throws InterruptedException {
        var settings = Map.<String, Object>of("bootstrap.servers", AT, "enable.idempotence", true);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 4; number++) {
                try {
                    producer.send(new ProducerRecord<>("orders", number % 2, null, "a")).get();
                } catch (ExecutionException refused) { }
            }
        }
        return "sent";
    }

    public static void main(String[] words) throws Exception {
        try {
            System.out.println(KafkaClients.class.getDeclaredMethod(words[0]).invoke(null));
        } catch (java.lang.reflect.InvocationTargetException raised) {
            if (!(raised.getCause() instanceof KafkaException)) throw raised;
            System.out.println("raised " + raised.getCause().getClass().getSimpleName());
        }
        System.exit(0);
    }
}
