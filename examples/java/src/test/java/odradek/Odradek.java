package odradek;

import java.io.IOException;
import java.lang.annotation.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.*;
import org.junit.platform.commons.support.AnnotationSupport;

/**
 * A fresh Kafka cluster for each test, or class where the field is static: {@code @Odradek Cluster cluster}. The first
 * starts Odradek, unless ODRADEK_CONTROL=HOST:PORT names one, and ODRADEK_TOKEN the token that it asks for.
 */
@Target({ElementType.FIELD, ElementType.PARAMETER})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(Odradek.Extension.class)
public @interface Odradek {
  int nodes() default 1;
  int[] nodeIds() default {}; // in place of their number
  String[] settings() default {};
  String[] topics() default {}; // with partitions: "orders=3"

  /** One cluster. Rules, conditions and answers are JSON: see docs/testing.md of Odradek. */
  final class Cluster {
    public final String bootstrap;
    private final String path;
    private boolean called; // so there may be rules

    private Cluster(Odradek options) {
      Object nodes = options.nodeIds().length == 0 ? options.nodes() : Arrays.toString(options.nodeIds());
      String told = send("POST", "/clusters", "{\"nodes\":%s,\"settings\":%s,\"topics\":%s}".formatted(
          nodes, object("\"%s\":\"%s\"", options.settings()), object("\"%s\":%s", options.topics())));
      bootstrap = found("\"bootstrap\": \"([^\"]+)\"", told);
      path = "/clusters/" + found("\"id\": \"([^\"]+)\"", told);
    }

    private static String object(String field, String[] fields) {
      return "{" + String.join(",", Arrays.stream(fields)
          .map(each -> field.formatted((Object[]) each.split("=", 2))).toList()) + "}";
    }

    /** Adds a rule. If nothing has matched it, the test fails. */
    public void fault(String rule) { call("POST", "/faults", rule); }

    /** Waits up to ten seconds for a condition, such as {@code {"topic": "orders", "log_end_offset": 1}}. */
    public String await(String condition) { return call("POST", "/wait", condition); }

    /** Moves the cluster's clock; returns when all that became due has happened. */
    public void advance(Duration time) { call("POST", "/clock/advance", "{\"ms\":" + time.toMillis() + "}"); }

    /** Any other call of the control interface; throws IllegalStateException with its words if it is refused. */
    public String call(String method, String call, String body) {
      called = true;
      return send(method, path + call, body);
    }

    private static String send(String method, String path, String body) {
      try {
        HttpURLConnection made = (HttpURLConnection) URI.create(Control.address() + path).toURL().openConnection();
        made.setRequestMethod(method);
        made.setRequestProperty("Content-Type", "application/json");
        made.setRequestProperty("Authorization", "Bearer " + Control.TOKEN);
        made.setDoOutput(!body.isEmpty());
        if (made.getDoOutput()) made.getOutputStream().write(body.getBytes(StandardCharsets.UTF_8));
        boolean refused = made.getResponseCode() >= 400;
        byte[] answer = (refused ? made.getErrorStream() : made.getInputStream()).readAllBytes();
        if (!refused) return new String(answer, StandardCharsets.UTF_8);
        throw new IllegalStateException(method + " " + path + " " + body + ": " + new String(answer));
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }

    private static String found(String pattern, String text) {
      return Pattern.compile(pattern).matcher(text).results().findFirst()
          .orElseThrow(() -> new IllegalStateException(text)).group(1);
    }
  }

  final class Control { // the process that all clusters live in
    private static final String START = """
        trap '' HUP INT TERM; folder=$(mktemp -d); trap 'kill $!; wait; rm -r "$folder"' EXIT
        if command -v odradek >/dev/null; then set -- odradek; else set -- python3 -m odradek; fi
        "$@" serve --control --ephemeral --port 0 --override odradek.http.port=0 \\
          --ready-file "$folder/ready" >"$folder/log" 2>&1 </dev/null &
        until [ -s "$folder/ready" ]; do kill -0 $! || { cat "$folder/log" >&2; exit 1; }; sleep 0.01; done
        cat "$folder/ready"; exec >/dev/null 2>&1; cat""";
    private static Process process; // ends when its standard input does: with this JVM, however that ends
    private static String address = System.getenv("ODRADEK_CONTROL");
    private static final String TOKEN = System.getenv().getOrDefault("ODRADEK_TOKEN", "");

    private static synchronized String address() throws IOException {
      if (address == null) {
        process = new ProcessBuilder("sh", "-c", START).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        address = "127.0.0.1:" + Cluster.found("\"http_port\": (\\d+)", "" + process.inputReader().readLine());
      }
      return "http://" + address + "/control/v1";
    }
  }

  final class Extension
      implements BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback, ParameterResolver {
    @Override public void beforeAll(ExtensionContext context) throws Exception {
      fill(context.getRequiredTestClass(), null, context);
    }
    @Override public void beforeEach(ExtensionContext context) throws Exception {
      for (Object test : context.getRequiredTestInstances().getAllInstances()) fill(test.getClass(), test, context);
    }
    private static void fill(Class<?> type, Object test, ExtensionContext context) throws Exception {
      for (Field field : AnnotationSupport.findAnnotatedFields(type, Odradek.class,
          each -> Modifier.isStatic(each.getModifiers()) == (test == null))) {
        field.setAccessible(true);
        field.set(test, made(field.getAnnotation(Odradek.class), context));
      }
    }

    @Override public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
      return parameter.isAnnotated(Odradek.class) && parameter.getParameter().getType() == Cluster.class;
    }
    @Override public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
      return made(parameter.findAnnotation(Odradek.class).orElseThrow(), context);
    }
    @Override public void afterAll(ExtensionContext context) { afterEach(context); }
    @Override public void afterEach(ExtensionContext context) {
      boolean failed = context.getExecutionException().isPresent();
      String missed = ""; // all clusters are deleted before it is told
      for (Cluster each = clusters(context).poll(); each != null; each = clusters(context).poll()) {
        String rules = each.called ? each.call("GET", "/faults", "") : "[]";
        if (failed) System.err.println("Kafka: the last exchanges "
            + each.call("GET", "/requests?limit=20", "").replace("{\"number\"", "\n{\"number\""));
        each.call("DELETE", "", "");
        if (Arrays.stream(rules.split("\"hits\": \\d+}"))
            .anyMatch(rule -> rule.contains("\"matched\": 0") && !rule.contains("\"unused\": \"ok\""))) missed += rules;
      }
      if (!missed.isEmpty() && !failed) throw new AssertionError("nothing matched a rule: " + missed);
    }

    private static Cluster made(Odradek options, ExtensionContext context) {
      clusters(context).add(new Cluster(options));
      return clusters(context).getLast();
    }
    @SuppressWarnings("unchecked")
    private static Deque<Cluster> clusters(ExtensionContext context) {
      ExtensionContext.Store store = context.getStore(ExtensionContext.Namespace.create(Odradek.class));
      return store.getOrComputeIfAbsent(context.getUniqueId(), id -> new ArrayDeque<Cluster>(), Deque.class);
    }
  }
}
