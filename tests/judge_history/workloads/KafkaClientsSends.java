import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** An idempotent producer sends to two partitions in turn, each record after the answer to the last one. */
public class KafkaClientsSends {
  public static void main(String[] arguments) throws Exception {
    Map<String, Object> settings =
        Map.of("bootstrap.servers", System.getenv("ODRADEK_BOOTSTRAP"), "client.id", "judged",
            "enable.idempotence", true);
    try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      for (int number = 0; number < 4; number++) {
        try {
          producer.send(new ProducerRecord<>("orders", number % 2, null, "a")).get();
        } catch (ExecutionException refused) {
          System.out.println(refused.getCause());
        }
      }
    }
  }
}
