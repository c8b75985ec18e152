import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints Kafka's settings, separated by tabs. Then, for each value on stdin, prints how each setting parses this value.
 */
public class Settings {
    private static Method PARSE;

    public static void main(String[] arguments) throws ReflectiveOperationException {
        PARSE = ConfigDef.class.getDeclaredMethod("parseValue", ConfigDef.ConfigKey.class, Object.class, boolean.class);
        PARSE.setAccessible(true);
        Map<String, ConfigDef> tables = new TreeMap<>(Map.of(
            "broker", AbstractKafkaConfig.CONFIG_DEF,
            "topic", LogConfig.configDefCopy(),
            "group", GroupConfig.CONFIG_DEF,
            "client-metrics", ClientMetricsConfigs.configDef()));
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        tables.forEach((table, definition) -> definition.configKeys().values().forEach(key -> {
            Object defaultValue = key.hasDefault() ? key.defaultValue : null;
            String text = ConfigDef.convertToString(defaultValue, key.type);
            String mode = table.equals("broker") ? modes.getOrDefault(key.name, "read-only") : "read-only";
            System.out.println(String.join("\t", "setting", table, key.name, key.type.name(), word(text),
                String.valueOf(key.internalConfig), mode));
        }));
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String value = new String(Base64.getDecoder().decode(lines.nextLine()), StandardCharsets.UTF_8);
            tables.forEach((table, definition) -> definition.configKeys().values().forEach(key -> {
                String outcome;
                try {
                    Object parsed = PARSE.invoke(definition, key, value, true);
                    outcome = "ok " + ConfigDef.convertToString(parsed, key.type);
                } catch (InvocationTargetException refusal) {
                    outcome = "no " + refusal.getCause().getMessage();
                } catch (IllegalAccessException impossible) {
                    throw new IllegalStateException(impossible);
                }
                System.out.println(String.join("\t", "value", table, key.name, word(value), word(outcome)));
            }));
        }
    }

    private static String word(String text) {
        return text == null ? "-" : "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
