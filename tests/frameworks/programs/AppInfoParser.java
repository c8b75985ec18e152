package org.apache.kafka.common.utils;

/** What the file connector of Kafka 4.3.1 asks for its version, and Kafka 4.4.0 has elsewhere. */
public class AppInfoParser {
    public static String getVersion() {
        return "4.3.1";
    }
}
