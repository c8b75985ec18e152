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
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A driver for `odradek judge --suite` that uses the Java clients. Run it with `java -cp 'JARS/*' KafkaClients.java`. */
public class KafkaClients {
    static final Map<String, String> ENV = System.getenv();
    static final String DONE = "{}", NO_SUCH = "{\"unimplemented\": true}";

    KafkaProducer<String, String> producer;
    KafkaConsumer<String, String> consumer;
    KafkaShareConsumer<String, String> sharer;
    final Map<String, Object> asked = new HashMap<>();  // settings from the command `set`

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

    String set(String name, String value) {
        switch (name) {
            case "protocol": asked.put("group.protocol", value); return DONE;
            case "rack": asked.put("client.rack", value); return DONE;
            case "create_topics": asked.put("allow.auto.create.topics", !value.equals("off")); return DONE;
            case "assignor":
                if (!value.equals("cooperative-sticky")) return NO_SUCH;
                asked.put("partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
                return DONE;
            case "max_poll_interval_ms":
                asked.putAll(Map.of("max.poll.interval.ms", Integer.parseInt(value), "session.timeout.ms", 6000));
                return DONE;
            default: return NO_SUCH;
        }
    }

    String subscribe(String topic) {
        if (consumer == null) {
            var settings = settings();
            settings.putAll(Map.of("group.id", ENV.get("ODRADEK_GROUP"), "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "isolation.level", "read_committed"));
            if (ENV.containsKey("ODRADEK_GROUP_INSTANCE_ID"))
                settings.put("group.instance.id", ENV.get("ODRADEK_GROUP_INSTANCE_ID"));
            settings.putAll(asked);
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        }
        consumer.subscribe(List.of(topic));
        return DONE;
    }

    String share(String topic) {
        var settings = settings();
        settings.put("group.id", ENV.get("ODRADEK_GROUP"));
        sharer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        sharer.subscribe(List.of(topic));
        return DONE;
    }

    String poll(long timeoutMs) {
        var timeout = Duration.ofMillis(timeoutMs);
        ConsumerRecords<String, String> found = sharer == null ? consumer.poll(timeout) : sharer.poll(timeout);
        var values = new ArrayList<String>();
        found.forEach(record -> values.add(record.value()));
        return records(values);
    }

    static String records(List<String> values) {
        return "{\"records\": [" + String.join(", ", values.stream().map(KafkaClients::quoted).toList()) + "]}";
    }

    String ack() {
        if (sharer == null) consumer.commitSync();
        else
            for (var refused : sharer.commitSync().values()) if (refused.isPresent()) throw refused.get();
        return DONE;
    }

    String groups() throws Exception {
        try (var admin = Admin.create(settings())) {
            return records(admin.listGroups().all().get().stream().map(each -> each.groupId()).toList());
        }
    }

    String create(String topic) throws Exception {
        try (var admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        return DONE;
    }

    String offsets() throws Exception {
        var group = ENV.get("ODRADEK_GROUP");
        try (var admin = Admin.create(settings())) {
            admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).all().get();
        }
        return DONE;
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
            case "set": return set(words[1], words[2]);
            case "subscribe": return subscribe(words[1]);
            case "poll": return poll(Long.parseLong(words[1]));
            case "ack": return ack();
            case "unsubscribe": consumer.unsubscribe(); return DONE;
            case "share": return share(words[1]);
            case "create": return create(words[1]);
            case "groups": return groups();
            case "offsets": return offsets();
            default: return NO_SUCH;
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
        var answers = System.out;
        System.setOut(System.err);  // standard output is for replies, so logs go to standard error
        var driver = new KafkaClients();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) answers.println(driver.told(line.split(" ")));
        if (driver.producer != null) driver.producer.close();
        if (driver.consumer != null) driver.consumer.close();
        if (driver.sharer != null) driver.sharer.close();
    }
}
