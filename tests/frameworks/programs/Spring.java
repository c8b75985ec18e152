import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.ShareKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.transaction.KafkaTransactionManager;

/**
 * Runs three listeners: BOOTSTRAP INPUT OUTPUT COUNT.
 *
 * <p>The first listener is in a classic group and copies INPUT to OUTPUT in transactions. For every tenth record, its
 * first attempt fails. A listener in a KIP-848 group and one in a share group count the results.
 */
@Configuration
@EnableKafka
public class Spring {
    static String bootstrap, input, output;
    static CountDownLatch consumed, shared;
    static final Map<String, Boolean> failed = new HashMap<>();

    static Map<String, Object> settings(String... pairs) {
        var found = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap));
        for (int index = 0; index < pairs.length; index += 2) found.put(pairs[index], pairs[index + 1]);
        return found;
    }

    static ConsumerFactory<String, String> consumers(String... pairs) {
        var all = settings(pairs);
        all.put("auto.offset.reset", "earliest");
        all.put("isolation.level", "read_committed");
        return new DefaultKafkaConsumerFactory<>(all, new StringDeserializer(), new StringDeserializer());
    }

    @Bean ProducerFactory<String, String> producerFactory() {
        var factory = new DefaultKafkaProducerFactory<String, String>(settings(), new StringSerializer(), new StringSerializer());
        factory.setTransactionIdPrefix(input + "-tx-");
        return factory;
    }

    @Bean KafkaTemplate<String, String> template(ProducerFactory<String, String> factory) {
        return new KafkaTemplate<>(factory);
    }

    @Bean ConcurrentKafkaListenerContainerFactory<String, String> transactional(ProducerFactory<String, String> producers) {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(consumers());
        factory.getContainerProperties().setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        return factory;
    }

    @Bean ConcurrentKafkaListenerContainerFactory<String, String> ofKip848() {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(consumers("group.protocol", "consumer"));
        return factory;
    }

    @Bean ShareKafkaListenerContainerFactory<String, String> sharing() {
        return new ShareKafkaListenerContainerFactory<>(
            new DefaultShareConsumerFactory<>(settings(), new StringDeserializer(), new StringDeserializer(), true));
    }

    @Bean Listeners listeners(KafkaTemplate<String, String> template) {
        return new Listeners(template);
    }

    public static class Listeners {
        final KafkaTemplate<String, String> template;

        Listeners(KafkaTemplate<String, String> template) {
            this.template = template;
        }

        @KafkaListener(topics = "${input}", groupId = "${input}-classic", containerFactory = "transactional")
        public void copy(ConsumerRecord<String, String> record) {
            template.send(output, record.value());
            template.flush();
            if (record.offset() % 10 == 5 && failed.put(record.value(), true) == null) throw new IllegalStateException("once");
        }

        @KafkaListener(topics = "${output}", groupId = "${input}-848", containerFactory = "ofKip848")
        public void count(String value) {
            consumed.countDown();
        }

        @KafkaListener(topics = "${output}", groupId = "${input}-share", containerFactory = "sharing")
        public void share(ConsumerRecord<String, String> record) {
            shared.countDown();
        }
    }

    public static void main(String[] words) throws Exception {
        bootstrap = words[0];
        input = words[1];
        output = words[2];
        System.setProperty("input", input);
        System.setProperty("output", output);
        int count = Integer.parseInt(words[3]);
        consumed = new CountDownLatch(count);
        shared = new CountDownLatch(count);
        try (var context = new AnnotationConfigApplicationContext(Spring.class)) {
            System.out.println("consumed: " + consumed.await(60, TimeUnit.SECONDS));
            System.out.println("shared: " + shared.await(60, TimeUnit.SECONDS));
        }
        System.exit(0);
    }
}
