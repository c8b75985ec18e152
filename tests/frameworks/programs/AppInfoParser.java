package org.apache.kafka.common.utils;

/** Returns the version that the file connector of Kafka 4.3.1 requests. Kafka 4.4.0 has moved the original class. */
public class AppInfoParser {
    public static String getVersion() {
        return "4.3.1";
    }
}
