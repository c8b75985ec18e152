import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Runs an instance of a word count: INPUT OUTPUT SHAPE NAME=VALUE... The last arguments are the settings of the
 * instance.
 *
 * <p>Words are grouped by a repartition topic and counted in a store with a changelog. Each update is written to
 * OUTPUT, with the word as key and the count as text. SHAPE is `counts`, or `counts-and-lengths` for a second store.
 * The record `boom` makes the application fail.
 *
 * <p>The instance prints its states, tasks and exceptions, one per line. It ends when it reads a line from standard
 * input: `close`, or `leave` to leave the group permanently.
 */
public class Streamed {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        for (var each : Arrays.asList(arguments).subList(3, arguments.length)) {
            var at = each.indexOf('=');
            settings.put(each.substring(0, at), each.substring(at + 1));
        }
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        var builder = new StreamsBuilder();
        var words = builder.<String, String>stream(arguments[0]).flatMapValues(line -> {
            if (line.equals("boom")) throw new IllegalStateException("boom");
            return Arrays.asList(line.split(" "));
        });
        words.groupBy((key, word) -> word, Grouped.as("by-word")).count(Materialized.as("counts")).toStream()
            .mapValues(String::valueOf).to(arguments[1], Produced.with(Serdes.String(), Serdes.String()));
        if (arguments[2].equals("counts-and-lengths"))
            words.groupBy((key, word) -> String.valueOf(word.length()), Grouped.as("by-length"))
                .count(Materialized.as("lengths"));

        var streams = new KafkaStreams(builder.build(), settings);
        var over = new CountDownLatch(1);
        var isClosing = new java.util.concurrent.atomic.AtomicBoolean();
        streams.setStateListener((now, before) -> {
            say("state " + now);
            // A close that a test has requested prints its result after the state NOT_RUNNING.
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING && !isClosing.get())
                over.countDown();
        });
        streams.setUncaughtExceptionHandler(error -> {
            Throwable cause = error;
            while (cause.getCause() != null) cause = cause.getCause();
            say("failed " + error.getClass().getSimpleName() + ": " + cause.getClass().getSimpleName() + ": "
                + String.valueOf(cause.getMessage()).replace('\n', ' '));
            return "boom".equals(cause.getMessage()) ? StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
                : StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        var watches = new Thread(() -> watch(streams));
        watches.setDaemon(true);
        watches.start();
        var reads = new Thread(() -> {
            var how = new java.util.Scanner(System.in).nextLine();
            var options = new KafkaStreams.CloseOptions().timeout(Duration.ofSeconds(30)).leaveGroup(how.equals("leave"));
            isClosing.set(true);
            say("closed " + streams.close(options));
            over.countDown();
        });
        reads.setDaemon(true);
        reads.start();
        over.await();
        if (streams.state() == KafkaStreams.State.ERROR) streams.close(Duration.ofSeconds(10));
        System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
    }

    /** Prints the tasks of the instance whenever they change. */
    static void watch(KafkaStreams streams) {
        var told = "";
        try {
            while (true) {
                var active = new TreeSet<String>();
                var standby = new TreeSet<String>();
                for (var thread : streams.metadataForLocalThreads()) {
                    thread.activeTasks().forEach(task -> active.add(task.taskId().toString()));
                    thread.standbyTasks().forEach(task -> standby.add(task.taskId().toString()));
                }
                var now = "tasks " + String.join(",", active) + " standby " + String.join(",", standby);
                if (!now.equals(told)) say(now);
                told = now;
                Thread.sleep(50);
            }
        } catch (IllegalStateException | InterruptedException notRunning) {
            return;
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
