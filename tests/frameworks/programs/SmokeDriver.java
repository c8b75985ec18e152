import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/**
 * Runs Kafka's own driver for the Kafka Streams smoke test: BOOTSTRAP KEYS RECORDS SECONDS.
 *
 * <p>It creates the topics and prints `ready`. It sends RECORDS records for each of KEYS keys over SECONDS seconds, and
 * prints `generated`. Then it compares the applications' output with the expected output and prints `verified` or the
 * difference.
 */
public class SmokeDriver {
    private static final int PARTITIONS = 4;

    public static void main(String[] arguments) throws Exception {
        var bootstrap = arguments[0];
        int keys = Integer.parseInt(arguments[1]), records = Integer.parseInt(arguments[2]);
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            var topics = Arrays.stream(SmokeTestDriver.topics()).map(name -> new NewTopic(name, PARTITIONS, (short) 1));
            admin.createTopics(topics.collect(Collectors.toList())).all().get();
        }
        say("ready");
        var written = SmokeTestDriver.generate(
            bootstrap, keys, records, Duration.ofSeconds(Long.parseLong(arguments[3])));
        say("generated");
        var found = SmokeTestDriver.verify(bootstrap, written, records, true);
        say(found.passed() ? "verified" : "wrong: " + found.result());
        System.exit(found.passed() ? 0 : 1);
    }

    /** Prints a line with a mark, which separates it from the many lines that Kafka's driver prints. */
    private static void say(String words) {
        System.out.println("\n> " + words);
        System.out.flush();
    }
}
