import java.io.IOException;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Small applications with Java's share consumer. Older releases that run KafkaClients do not have this consumer. */
public class KafkaShareClients {
    static final String AT = System.getenv("ODRADEK_BOOTSTRAP");

    static final KafkaShareConsumer<String, String> CONSUMER = new KafkaShareConsumer<>(
        Map.of("bootstrap.servers", AT, "group.id", "g", "share.acknowledgement.mode", "explicit"),
        new StringDeserializer(), new StringDeserializer());

    /** Reads with a single poll, so that no second fetch is in flight afterwards. */
    static List<ConsumerRecord<String, String>> read() {
        CONSUMER.subscribe(List.of("orders"));
        var records = new ArrayList<ConsumerRecord<String, String>>();
        CONSUMER.poll(Duration.ofSeconds(30)).forEach(records::add);
        return records;
    }

    /** Acknowledges a record, and a second one before the response to the first acknowledgement. */
    static String acknowledgeTwice() {
        var told = new ArrayList<Object>();
        CONSUMER.setAcknowledgementCommitCallback((offsets, error) -> told.add(offsets));
        var records = read();
        CONSUMER.acknowledge(records.get(0));
        CONSUMER.commitAsync();
        CONSUMER.acknowledge(records.get(1));
        for (int polls = 0; polls < 50 && told.size() < 2; polls++) CONSUMER.poll(Duration.ofMillis(100));
        return "heard of " + told.size();
    }

    /** Acknowledges records after their broker has restarted. */
    static String acknowledgeAfterRestart() throws Exception {
        read().forEach(CONSUMER::acknowledge);
        var at = AT.split(":");
        var port = Integer.parseInt(at[1]);
        try (var idle = new Socket(at[0], port); var admin = Admin.create(Map.of("bootstrap.servers", AT))) {
            // The test waits for this request, which shows that no fetch is in flight. Then it restarts the broker.
            admin.describeCluster().nodes().get();
            idle.getInputStream().read();
        } catch (IOException gone) { }
        // Meanwhile the consumer reconnects to request metadata.
        for (boolean back = false; !back; Thread.sleep(1000)) {
            try (var connection = new Socket(at[0], port)) {
                back = true;
            } catch (IOException refused) { }
        }
        var errors = CONSUMER.commitSync().values().iterator().next();
        return errors.map(each -> "refused by " + each.getClass().getSimpleName()).orElse("acknowledged");
    }

    public static void main(String[] words) throws Exception {
        System.out.println(KafkaShareClients.class.getDeclaredMethod(words[0]).invoke(null));
        System.exit(0);
    }
}
