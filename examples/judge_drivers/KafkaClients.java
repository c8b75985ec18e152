import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A driver of `odradek judge --suite` for Java's clients: `java -cp 'JARS/*' KafkaClients.java`. */
public class KafkaClients {
    static final Map<String, String> ENV = System.getenv();
    static final String DONE = "{}";

    KafkaProducer<String, String> producer;
    KafkaConsumer<String, String> consumer;

    static Map<String, Object> settings() {
        return new HashMap<>(Map.of("bootstrap.servers", ENV.get("ODRADEK_BOOTSTRAP"), "client.id", "judged",
            "metadata.max.age.ms", 1000));
    }

    KafkaProducer<String, String> producing() {
        if (producer == null) {
            var settings = settings();
            var transactionalId = ENV.get("ODRADEK_TRANSACTIONAL_ID");
            if (transactionalId != null) {
                settings.put("transactional.id", transactionalId);
            } else if ("off".equals(ENV.get("ODRADEK_IDEMPOTENCE"))) {
                settings.putAll(Map.of("enable.idempotence", false, "max.in.flight.requests.per.connection", 1));
            } else {
                settings.put("enable.idempotence", true);
            }
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
            if (transactionalId != null) producer.initTransactions();
        }
        return producer;
    }

    String produce(String topic, int partition, List<String> values) throws Exception {
        var sent = new ArrayList<Future<?>>();
        for (var value : values) sent.add(producing().send(new ProducerRecord<>(topic, partition, null, value)));
        for (var each : sent) each.get();
        return DONE;
    }

    String subscribe(String topic) {
        var settings = settings();
        settings.putAll(Map.of("group.id", ENV.get("ODRADEK_GROUP"), "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "isolation.level", "read_committed"));
        if (ENV.containsKey("ODRADEK_GROUP_INSTANCE_ID"))
            settings.put("group.instance.id", ENV.get("ODRADEK_GROUP_INSTANCE_ID"));
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return DONE;
    }

    String poll(long timeoutMs) {
        var values = new ArrayList<String>();
        consumer.poll(Duration.ofMillis(timeoutMs)).forEach(record -> values.add(quoted(record.value())));
        return "{\"records\": [" + String.join(", ", values) + "]}";
    }

    static String quoted(String text) {
        var escaped = new StringBuilder("\"");
        for (char each : text.toCharArray())
            escaped.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
        return escaped.append('"').toString();
    }

    String act(String[] words) throws Exception {
        switch (words[0]) {
            case "produce": return produce(words[1], Integer.parseInt(words[2]), List.of(words).subList(3, words.length));
            case "begin": producing().beginTransaction(); return DONE;
            case "commit": producing().commitTransaction(); return DONE;
            case "abort": producing().abortTransaction(); return DONE;
            case "subscribe": return subscribe(words[1]);
            case "poll": return poll(Long.parseLong(words[1]));
            case "ack": consumer.commitSync(); return DONE;
            default: return "{\"unimplemented\": true}";
        }
    }

    String told(String[] words) {
        try {
            return act(words);
        } catch (ExecutionException refused) {
            return "{\"error\": " + quoted(refused.getCause().toString()) + "}";
        } catch (Exception error) {
            return "{\"error\": " + quoted(error.toString()) + "}";
        }
    }

    public static void main(String[] words) throws IOException {
        var driver = new KafkaClients();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) System.out.println(driver.told(line.split(" ")));
        if (driver.producer != null) driver.producer.close();
        if (driver.consumer != null) driver.consumer.close();
    }
}
