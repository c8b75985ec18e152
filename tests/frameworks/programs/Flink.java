import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies the records of one topic to another, exactly once, in a MiniCluster: BOOTSTRAP INPUT OUTPUT. */
public class Flink {
    public static void main(String[] words) throws Exception {
        var environment = StreamExecutionEnvironment.createLocalEnvironment(2, new Configuration());
        environment.enableCheckpointing(200);
        var source = KafkaSource.<String>builder()
            .setBootstrapServers(words[0])
            .setTopics(words[1])
            .setGroupId(words[1] + "-flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setProperty("isolation.level", "read_committed")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        var more = new Properties();
        more.setProperty("transaction.timeout.ms", "60000");
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(words[0])
            .setKafkaProducerConfig(more)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(words[1])
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(words[2]).setValueSerializationSchema(new SimpleStringSchema()).build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "input")
            .map(value -> { Thread.sleep(5); return value; })
            .sinkTo(sink);
        environment.execute("copy");
        System.out.println("copied");
        System.exit(0);
    }
}
