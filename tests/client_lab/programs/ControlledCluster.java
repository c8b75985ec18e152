package odradek;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.opentest4j.TestAbortedException;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Creates clusters of `odradek serve --control`, which runs at ODRADEK_CONTROL, for tests of Kafka that start a
 * cluster.
 */
public final class ControlledCluster {
    private static final String BASE = "http://" + System.getenv("ODRADEK_CONTROL") + "/control/v1/clusters";
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> KAFKAS = Set.of(
        "listener.security.protocol.map", "log.cleaner.dedupe.buffer.size", "unstable.api.versions.enable",
        "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr");

    private ControlledCluster() { }

    /** Calls the control interface. Aborts the test if Odradek refuses the call. */
    public static JsonNode call(String method, String path, Object body) {
        try {
            HttpURLConnection http = opened(method, path);
            if (body != null) {
                http.setDoOutput(true);
                http.getOutputStream().write(JSON.writeValueAsBytes(body));
            }
            if (http.getResponseCode() < 400) return JSON.readTree(http.getInputStream());
            String why = JSON.readTree(http.getErrorStream()).get("detail").asText();
            throw new TestAbortedException("Odradek refuses: " + why);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    // Opens a connection without keep-alive. A thread that keeps connections would be reported as a leak of the test.
    private static HttpURLConnection opened(String method, String path) throws IOException {
        HttpURLConnection http = (HttpURLConnection) URI.create(BASE + path).toURL().openConnection();
        http.setRequestMethod(method);
        http.setRequestProperty("Content-Type", "application/json");
        http.setRequestProperty("Connection", "close");
        return http;
    }

    /**
     * Creates a cluster with a lease of `life`. Kafka ignores settings that it does not know, so this method retries
     * without those that Odradek does not know. `more` contains further fields of the call.
     */
    public static JsonNode created(
        Map<String, String> settings, List<Integer> nodes, Duration life, Map<String, String> more) {
        settings.keySet().removeAll(KAFKAS);
        while (true) {
            try {
                Map<String, Object> fields = new HashMap<>(more);
                fields.putAll(Map.of("settings", settings, "nodes", nodes, "ttl_s", life.toSeconds()));
                return call("POST", "", fields);
            } catch (TestAbortedException refusal) {
                if (!refusal.getMessage().contains(" is unknown")
                    || !settings.keySet().removeIf(name -> refusal.getMessage().contains("settings." + name + ":")))
                    throw refusal;
            }
        }
    }

    /** Records all exchanges with a cluster until it is deleted. Returns the thread that writes the recording. */
    public static Thread recorded(String id, Path recording) {
        try {
            InputStream body = opened("GET", "/" + id + "/recording").getInputStream();
            Thread recorder = new Thread(() -> {
                try (body) {
                    Files.copy(body, recording);
                } catch (IOException error) {
                    System.err.println(recording + ": " + error);
                }
            }, "recorder");
            recorder.setDaemon(true);
            recorder.start();
            return recorder;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
