import java.nio.file.Files;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Counts records by key, exactly once: BOOTSTRAP INPUT OUTPUT. It runs until its standard input is closed. */
public class Streams {
    public static void main(String[] words) throws Exception {
        var settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", words[0],
            "application.id", words[1] + "-counts",
            "processing.guarantee", "exactly_once_v2",
            "commit.interval.ms", 100,
            "replication.factor", 1,
            "auto.offset.reset", "earliest",
            "session.timeout.ms", 6_000,
            "heartbeat.interval.ms", 1_000,
            "state.dir", Files.createTempDirectory("streams").toString()));
        var builder = new StreamsBuilder();
        var text = Serdes.String();
        builder.stream(words[1], Consumed.with(text, text))
            .groupByKey(Grouped.with(text, text))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(text).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(words[2], Produced.with(text, text));
        var runs = new CountDownLatch(1);
        try (var streams = new KafkaStreams(builder.build(), settings)) {
            streams.setStateListener((now, before) -> {
                System.out.println(now);
                if (now == KafkaStreams.State.RUNNING) runs.countDown();
            });
            streams.start();
            while (System.in.read() >= 0) { }
            streams.close(Duration.ofSeconds(20));
        }
    }
}
