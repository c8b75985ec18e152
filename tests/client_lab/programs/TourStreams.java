import java.nio.file.Files;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Produces, and copies the records exactly once in an application of Kafka Streams, a member of the streams group g. */
public class TourStreams {
    static final int RECORDS = 20;
    static final String BOOTSTRAP = System.getenv("ODRADEK_BOOTSTRAP");

    static void produces() {
        var settings = new Properties();
        settings.put("bootstrap.servers", BOOTSTRAP);
        settings.put("client.id", "judged");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < RECORDS; number++)
                producer.send(new ProducerRecord<>("orders", 0, null, "record " + number)).get();
        } catch (Exception error) {
            System.out.println(error);
        }
    }

    public static void main(String[] words) throws Exception {
        produces();
        var settings = new Properties();
        settings.put("bootstrap.servers", BOOTSTRAP);
        settings.put("client.id", "judged");
        settings.put("application.id", "g");
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("auto.offset.reset", "earliest");
        settings.put("state.dir", Files.createTempDirectory("tour").toString());
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        var copied = new CountDownLatch(RECORDS);
        var failed = new CountDownLatch(1);
        var builder = new StreamsBuilder();
        builder.<String, String>stream("orders").peek((key, value) -> copied.countDown()).to("copies");
        try (var application = new KafkaStreams(builder.build(), settings)) {
            application.setUncaughtExceptionHandler(error -> {
                System.out.println(error);
                failed.countDown();
                while (copied.getCount() > 0) copied.countDown();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            application.start();
            copied.await(25, TimeUnit.SECONDS);
            failed.await(6, TimeUnit.SECONDS);  // The next heartbeat and commits follow.
            application.close(Duration.ofSeconds(10));
        }
        System.exit(0);
    }
}
