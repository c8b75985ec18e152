import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;

/** Produces, commits and aborts transactions, and reads with groups of both protocols. */
public class Tour {
    static final String STRINGS = "org.apache.kafka.common.serialization.String";

    static Map<String, Object> settings(String... pairs) {
        Map<String, Object> found = new HashMap<>();
        found.put("bootstrap.servers", System.getenv("ODRADEK_BOOTSTRAP"));
        found.put("client.id", "judged");
        for (String kind : List.of("key", "value")) {
            found.put(kind + ".serializer", STRINGS + "Serializer");
            found.put(kind + ".deserializer", STRINGS + "Deserializer");
        }
        found.put("auto.offset.reset", "earliest");
        found.put("isolation.level", "read_committed");
        found.put("enable.auto.commit", "false");
        for (int index = 0; index < pairs.length; index += 2) {
            found.put(pairs[index], pairs[index + 1]);
        }
        return found;
    }

    static void step(Runnable action) {
        try {
            action.run();
        } catch (KafkaException | IllegalStateException error) {
            System.out.println(error);
        }
    }

    static void send(KafkaProducer<String, String> producer) {
        try {
            producer.send(new ProducerRecord<>("orders", 0, null, "a")).get();
        } catch (Exception error) {
            System.out.println(error);
        }
    }

    static void produces() {
        try (var producer = new KafkaProducer<String, String>(settings())) {
            for (int number = 0; number < 20; number++) {
                send(producer);
            }
        }
    }

    static void commits() {
        try (var producer = new KafkaProducer<String, String>(settings("transactional.id", "t"))) {
            producer.initTransactions();
            for (int number = 0; number < 4; number++) {
                producer.beginTransaction();
                send(producer);
                if (number == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    static void consumes(String... pairs) {
        try (var consumer = new KafkaConsumer<String, String>(settings(pairs))) {
            consumer.subscribe(List.of("orders"));
            for (int turn = 0; turn < 50; turn++) {
                if (!consumer.poll(Duration.ofMillis(100)).isEmpty()) {
                    step(consumer::commitSync);
                }
            }
        }
    }

    public static void main(String[] words) {
        step(Tour::produces);
        step(Tour::commits);
        step(() -> consumes("group.id", "g", "heartbeat.interval.ms", "500", "session.timeout.ms", "6000"));
        step(() -> consumes("group.id", "h", "group.protocol", "consumer"));
        System.exit(0);
    }
}
