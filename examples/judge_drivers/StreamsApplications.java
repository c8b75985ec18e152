import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * A driver for `odradek judge --suite` that runs Kafka Streams applications in streams groups (KIP-1071). Run it with
 * `java -cp 'JARS/*' StreamsApplications.java`, with the jars of kafka-streams 4.4.0.
 */
public class StreamsApplications {
    static final Map<String, String> ENV = System.getenv();
    static final String DONE = "{}", NO_SUCH = "{\"unimplemented\": true}";

    final LinkedBlockingQueue<String> processed = new LinkedBlockingQueue<>();
    volatile Throwable failure;
    KafkaStreams application;

    String stream(String topic) throws IOException {
        var settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", ENV.get("ODRADEK_BOOTSTRAP"),
            "client.id", "judged",
            "application.id", ENV.get("ODRADEK_GROUP"),
            "group.protocol", "streams",
            "auto.offset.reset", "earliest",
            "metadata.max.age.ms", 1000,
            "commit.interval.ms", 600_000,  // a task commits only when it closes
            "state.dir", Files.createTempDirectory("judged").toString()));
        var instance = ENV.get("ODRADEK_GROUP_INSTANCE_ID");
        if (instance != null) settings.put("main.consumer.group.instance.id", instance);
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        var builder = new StreamsBuilder();
        builder.<String, String>stream(topic).foreach((key, value) -> processed.add(value));
        application = new KafkaStreams(builder.build(), settings);
        application.setUncaughtExceptionHandler(error -> {
            failure = error;
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        application.start();
        return DONE;
    }

    String poll(long timeoutMs) throws InterruptedException {
        var values = new ArrayList<String>();
        var first = processed.poll(timeoutMs, TimeUnit.MILLISECONDS);
        if (first != null) values.add(first);
        processed.drainTo(values);
        var records = "\"records\": [" + String.join(", ", values.stream().map(each -> quoted(each)).toList()) + "]";
        var failed = failure;
        failure = null;
        return failed == null ? "{" + records + "}" : "{" + records + ", \"error\": " + quoted(words(failed)) + "}";
    }

    static String words(Throwable error) {
        var words = new ArrayList<String>();
        for (var each = error; each != null; each = each.getCause()) words.add(each.toString());
        return String.join(": ", words);
    }

    static String quoted(String text) {
        var escaped = new StringBuilder("\"");
        for (char each : text.toCharArray())
            escaped.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
        return escaped.append('"').toString();
    }

    String act(String[] words) throws Exception {
        switch (words[0]) {
            case "stream": return stream(words[1]);
            case "poll": return poll(Long.parseLong(words[1]));
            default: return NO_SUCH;
        }
    }

    public static void main(String[] words) throws IOException {
        var answers = System.out;
        System.setOut(System.err);  // standard output is for replies, so logs go to standard error
        var driver = new StreamsApplications();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            String told;
            try {
                told = driver.act(line.split(" "));
            } catch (Exception error) {
                told = "{\"error\": " + quoted(error.toString()) + "}";
            }
            answers.println(told);
        }
        if (driver.application != null) driver.application.close(Duration.ofSeconds(10));
    }
}
