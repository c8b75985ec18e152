package odradek;

import java.io.*;
import java.lang.annotation.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.*;
import org.junit.platform.commons.support.AnnotationSupport;

/**
 * A fresh Kafka cluster for each test: {@code @Odradek Cluster cluster}. With a static field, all tests of the class
 * share the cluster. It is deleted after everything else that JUnit closes, such as fields with {@code @AutoClose}. The
 * first cluster starts Odradek. To use a control interface that is already running, set ODRADEK_CONTROL=HOST:PORT, and
 * ODRADEK_TOKEN if it requires a token.
 */
@Target({ElementType.FIELD, ElementType.PARAMETER})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(Odradek.Extension.class)
public @interface Odradek {
  int nodes() default 1;
  int[] nodeIds() default {}; // ids of the nodes, instead of their number
  String[] settings() default {};
  String[] topics() default {}; // topics with their numbers of partitions: "orders=3"
  String[] listeners() default {}; // each as JSON: "{\"protocol\": \"SASL_SSL\"}"
  String[] users() default {}; // users with their passwords: "alice=secret"
  String preset() default ""; // the name of a preset, or {"name": …, "parameters": {…}}
  String emulate() default ""; // a release of Kafka, such as "4.0"
  String seed() default ""; // records, groups, users … to create, in JSON or YAML: the text, or "@FILE"
  int ttlS() default 0; // lease in seconds, after which the cluster is deleted; 0: no lease

  /** One cluster. Rules, conditions and responses are JSON; docs/testing.md of Odradek describes them. */
  final class Cluster {
    public final String id;
    public final String bootstrap; // addresses of the first listener
    private final String told; // the response to POST /clusters
    private final String path;
    private final Clusters test; // the clusters of the same test
    private boolean called; // if true, the cluster may have rules
    private boolean deleted;
    private Thread recording;

    private Cluster(String options, Clusters test) {
      this.test = test;
      told = send("POST", "/clusters", options);
      id = found("\"id\": \"([^\"]+)\"", told);
      bootstrap = found("\"bootstrap\": \"([^\"]+)\"", told);
      path = "/clusters/" + id;
      test.made.add(this);
    }

    private static String of(Odradek options) {
      Object nodes = options.nodeIds().length == 0 ? options.nodes() : Arrays.toString(options.nodeIds());
      String preset = options.preset().startsWith("{") ? options.preset() : orNull(options.preset());
      return ("{\"nodes\":%s,\"settings\":%s,\"topics\":%s,\"listeners\":%s,\"users\":%s,\"preset\":%s,\"emulate\":%s,"
          + "\"seed\":%s,\"ttl_s\":%s}").formatted(nodes, object(options.settings(), true), object(options.topics(), false),
          options.listeners().length == 0 ? "null" : "[" + String.join(",", options.listeners()) + "]",
          options.users().length == 0 ? "null" : object(options.users(), true), preset, orNull(options.emulate()),
          orNull(textOf(options.seed())),
          options.ttlS() == 0 ? "null" : options.ttlS());
    }

    private static String object(String[] fields, boolean isText) {
      return "{" + String.join(",", Arrays.stream(fields).map(each -> each.split("=", 2))
          .map(each -> text(each[0]) + ":" + (isText ? text(each[1]) : each[1])).toList()) + "}";
    }

    /** Returns the text as a JSON string. */
    public static String text(String text) {
      StringBuilder found = new StringBuilder("\"");
      text.chars().forEach(each -> found.append(
          each < ' ' || each == '"' || each == '\\' ? "\\u%04x".formatted(each) : Character.toString(each)));
      return found.append('"').toString();
    }

    private static String textOf(String given) {
      if (!given.startsWith("@")) return given;
      try {
        return Files.readString(Path.of(given.substring(1)));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    private static String orNull(String text) { return text == null || text.isEmpty() ? "null" : text(text); }

    /** Returns the bootstrap address of a listener. Its name is in upper case. */
    public String bootstrap(String listener) {
      return found("\"name\": \"" + listener + "\", \"protocol\": \"\\w+\", \"bootstrap\": \"([^\"]+)\"", told);
    }

    /** Returns the CA certificate that clients must trust, as PEM. Throws if no listener uses TLS. */
    public String caCertificate() { return found("\"ca_certificate\": \"([^\"]+)\"", told).replace("\\n", "\n"); }

    /** Returns the URL of the schema registry. Throws if the cluster has none. */
    public String schemaRegistry() { return found("\"schema_registry\": \"([^\"]+)\"", told); }

    /** Returns this user's key and certificate as PEM, for listeners that require client certificates. */
    public String clientCertificate(String user) {
      return found("\"" + Pattern.quote(user) + "\": \"(-----BEGIN[^\"]+)\"", told).replace("\\n", "\n");
    }

    /** Creates a copy of this cluster, which is deleted at the end of the same test. */
    public Cluster fork() {
      Cluster fork = new Cluster("{\"fork\":" + text(id) + "}", test);
      fork.called = true; // Its preset may have added rules.
      return fork;
    }

    /** Adds a rule. The test fails at its end if the rule has had no effect. */
    public void fault(String rule) { call("POST", "/faults", rule); }

    /** Returns the rules with counters: "matched", "hits", and "unmade" for responses that could not be edited. */
    public String faults() { return call("GET", "/faults", ""); }

    /**
     * Throws an AssertionError if a rule matched nothing, or could not edit any response. The same check runs at the
     * end of the test.
     */
    public void checkFaults() {
      List<String> unused = parts(faults()).stream().filter(Cluster::isUnused).toList();
      if (!unused.isEmpty()) throw new AssertionError("these rules have done nothing: " + unused);
    }

    private static boolean isUnused(String rule) {
      return member(rule, "matched").equals(member(rule, "unmade")) && !member(rule, "unused").equals("\"ok\"");
    }

    /** Returns the raw value of a member of a JSON object, or "" if the object has no such member. */
    private static String member(String object, String name) {
      String begin = "\"" + name + "\":";
      return parts(object).stream().filter(each -> each.startsWith(begin)).findFirst()
          .map(each -> each.substring(begin.length()).strip()).orElse("");
    }

    /** Returns the raw items of a JSON list, or the raw members of a JSON object. */
    private static List<String> parts(String json) {
      List<String> parts = new ArrayList<>();
      boolean isText = false;
      int begin = 1;
      for (int at = 0, depth = 0; at < json.length(); at++) {
        char each = json.charAt(at);
        if (isText && each == '\\') at++; // An escaped quote does not end the string.
        else if (each == '"') isText = !isText;
        else if (isText) continue;
        else if (each == '[' || each == '{') depth++;
        else if (each == ']' || each == '}') depth--;
        if (isText || !(each == ',' && depth == 1 || depth == 0)) continue;
        String part = json.substring(begin, at).strip();
        if (!part.isEmpty()) parts.add(part);
        begin = at + 1;
      }
      return parts;
    }

    /** Deletes all rules. Requests that wait at their holds continue. */
    public void clearFaults() { call("DELETE", "/faults", ""); }

    /** Deletes the rule with this name. */
    public void clearFaults(String name) { call("DELETE", "/faults/" + escaped(name), ""); }

    /** Returns how many requests and broker steps wait at each hold. */
    public String holds() { return call("GET", "/holds", ""); }

    /** Lets all requests and broker steps that wait at this hold continue, and returns their number. */
    public int release(String hold) {
      return Integer.parseInt(found("\"released\": (\\d+)", call("POST", "/holds/" + escaped(hold) + "/release", "")));
    }

    /** Waits up to ten seconds for a condition to hold, such as {@code {"topic": "orders", "log_end_offset": 1}}. */
    public String await(String condition) { return call("POST", "/wait", condition); }

    /**
     * Returns the last exchanges, decoded, oldest first. A query such as "since=7&api=Fetch" selects some; "" returns
     * all.
     */
    public String requests(String where) { return call("GET", "/requests?" + where, ""); }

    /** Returns the leader, epoch and offsets of each partition. */
    public String partitions() { return rows("partitions"); }

    /** Returns each transactional id with its state. */
    public String transactions() { return rows("transactions"); }

    /** Returns the groups of all types with their state and members. */
    public String groups() { return rows("groups"); }

    /** Returns the share partitions in memory with their records in flight. */
    public String sharePartitions() { return rows("share_partitions"); }

    /** Returns the state of each producer id in each partition. */
    public String producers() { return rows("producers"); }

    /** Returns the fetch sessions and share sessions. */
    public String sessions() { return rows("sessions"); }

    /** Returns the open connections. */
    public String connections() { return rows("connections"); }

    private String rows(String name) {
      StringJoiner rows = new StringJoiner(", ", "[", "]");
      boolean more = true;
      for (int skip = 0; more; skip += 1000) { // the size of a page
        String page = call("GET", "/" + name + "?skip=" + skip + "&limit=1000", "");
        more = page.endsWith("\"more\": true}");
        rows.add(page.substring(page.indexOf('[') + 1, page.lastIndexOf(']')));
      }
      return rows.toString();
    }

    /**
     * Brings the cluster into a rare state and returns its facts. The parameters are JSON, such as
     * {@code {"topic": "orders"}}.
     */
    public String preset(String name, String parameters) {
      return call("POST", "/presets/" + escaped(name), parameters);
    }

    /** Returns the available presets with their parameters. */
    public String presets() { return call("GET", "/presets", ""); }

    /** Makes the cluster give responses that are rare but lawful. Seed 0 turns them off. */
    public String odd(int seed) { return call("POST", "/odd", "{\"seed\":" + seed + "}"); }

    /** Returns the seed, and how often each kind of rare response was given. */
    public String odd() { return call("GET", "/odd", ""); }

    /** Saves a copy of the log and the clock under this name. */
    public void checkpoint(String name) { call("POST", "/checkpoint", "{\"name\":" + text(name) + "}"); }

    /** Restores a checkpoint. It closes all connections; the ports stay the same. */
    public void rewind(String name) { call("POST", "/rewind", "{\"name\":" + text(name) + "}"); }

    /** Stops the cluster, and leaves on the disk exactly what {@code kill -9} would leave. */
    public void crash() { call("POST", "/crash", ""); }

    /** Stops the cluster and starts it again on the same ports. If {@code clean} is false, it crashes first. */
    public void restart(boolean clean) { call("POST", "/restart", "{\"clean\":" + clean + "}"); }

    /** Returns the id, host, port and state of each node. */
    public String nodes() { return found("\"nodes\": (\\[.*?\\])", call("GET", "", "")); }

    /**
     * Stops a node. If {@code clean} is true, other nodes become leaders of its partitions. Otherwise the node is
     * killed, and metadata lists it for another 9 s of the cluster's clock.
     */
    public void stopNode(int node, boolean clean) {
      call("POST", "/nodes/" + node + "/stop", "{\"clean\":" + clean + "}");
    }

    public void startNode(int node) { call("POST", "/nodes/" + node + "/start", ""); }

    /** Makes the node unreachable for this client. It adds a rule; delete the rule to undo this. */
    public void cutOff(int node, String clientId) {
      call("POST", "/nodes/" + node + "/unreachable_for", "{\"client_id\":" + text(clientId) + "}");
    }

    /** Makes the node the leader of the partition, in a new leader epoch. */
    public void moveLeader(String topic, int partition, int node) {
      call("POST", "/partitions/" + escaped(topic) + "/" + partition + "/leader", "{\"node\":" + node + "}");
    }

    /** Moves a coordinator to the node, where it reads its log again. The kind is group, transaction or share. */
    public void moveCoordinator(String kind, String key, int node) {
      call("POST", "/coordinators/" + kind + "/" + escaped(key), "{\"node\":" + node + "}");
    }

    /**
     * Sets the rack of a node. Leaders then send consumers in this rack to the node (KIP-392). Null removes the rack.
     */
    public void putInRack(int node, String rack) {
      call("POST", "/nodes/" + node + "/rack", "{\"rack\":" + orNull(rack) + "}");
    }

    /** Sets the records that the node has as a follower: those below the offset {@code end}, or all if it is null. */
    public void follow(String topic, int partition, int node, Long end) {
      call("POST", "/partitions/" + escaped(topic) + "/" + partition + "/follower",
          "{\"node\":" + node + ",\"end\":" + end + "}");
    }

    /**
     * Performs an unclean election: batches that do not lie entirely below the offset are lost. {@code node} becomes
     * the leader; null keeps the current leader.
     */
    public String truncate(String topic, int partition, long offset, Integer node) {
      return call("POST", "/partitions/" + escaped(topic) + "/" + partition + "/truncate",
          "{\"offset\":" + offset + ",\"node\":" + node + "}");
    }

    /** Returns the time of the cluster's clock. */
    public Instant now() {
      return Instant.ofEpochMilli(Long.parseLong(found("\"now_ms\": (\\d+)", call("GET", "/clock", ""))));
    }

    /** Stops the cluster's clock. */
    public void freeze() { call("POST", "/clock/freeze", ""); }

    /** Starts the cluster's clock again after {@link #freeze}. */
    public void resume() { call("POST", "/clock/resume", ""); }

    /** Moves the cluster's clock forward. It returns after everything that became due has happened. */
    public void advance(Duration time) { call("POST", "/clock/advance", "{\"ms\":" + time.toMillis() + "}"); }

    /** Sets the cluster's clock. */
    public void setClock(Instant time) { call("POST", "/clock/set", "{\"ms\":" + time.toEpochMilli() + "}"); }

    /** Writes all exchanges from now on to a file, until the cluster is deleted. odradek judge can read the file. */
    public void record(Path file) {
      try {
        InputStream exchanges = opened("GET", path + "/recording", "").getInputStream();
        OutputStream written = Files.newOutputStream(file);
        recording = new Thread(() -> {
          try (exchanges; written) {
            exchanges.transferTo(written);
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        });
        recording.start();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    /** Deletes the cluster after this time unless the lease is renewed before. Null removes the lease. */
    public void lease(Duration time) {
      call("POST", "/lease", "{\"ttl_s\":" + (time == null ? null : time.toSeconds()) + "}");
    }

    /** Closes all connections of the cluster and removes its files, before the end of the test. */
    public void delete() {
      if (deleted) return;
      deleted = true;
      call("DELETE", "", "");
      try {
        if (recording != null) recording.join();
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
      }
    }

    /**
     * Sends any request to the control interface. If it is refused, throws an IllegalStateException with the reason.
     */
    public String call(String method, String call, String body) {
      called = true;
      return send(method, path + call, body);
    }

    private static HttpURLConnection opened(String method, String path, String body) throws IOException {
      HttpURLConnection made = (HttpURLConnection) URI.create(Control.address() + path).toURL().openConnection();
      made.setRequestMethod(method);
      made.setRequestProperty("Content-Type", "application/json");
      made.setRequestProperty("Authorization", "Bearer " + Control.TOKEN);
      made.setDoOutput(!body.isEmpty());
      if (made.getDoOutput()) made.getOutputStream().write(body.getBytes(StandardCharsets.UTF_8));
      return made;
    }

    private static String send(String method, String path, String body) {
      try {
        HttpURLConnection made = opened(method, path, body);
        boolean refused = made.getResponseCode() >= 400;
        byte[] answer = (refused ? made.getErrorStream() : made.getInputStream()).readAllBytes();
        if (!refused) return new String(answer, StandardCharsets.UTF_8).stripTrailing();
        throw new IllegalStateException(method + " " + path + " " + body + ": " + new String(answer));
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }

    private static String escaped(String name) {
      return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static String found(String pattern, String text) {
      return Pattern.compile(pattern).matcher(text).results().findFirst()
          .orElseThrow(() -> new IllegalStateException(text)).group(1);
    }
  }

  /** The clusters of a test. JUnit closes them after everything else that belongs to the test. */
  final class Clusters implements ExtensionContext.Store.CloseableResource {
    private final Deque<Cluster> made = new ArrayDeque<>();
    private final ExtensionContext test;

    private Clusters(ExtensionContext test) { this.test = test; }

    @Override public void close() {
      boolean failed = test.getExecutionException().isPresent();
      String missed = ""; // reported after all clusters are deleted
      for (Cluster each = made.poll(); each != null; each = made.poll()) {
        if (each.deleted) continue;
        try {
          if (failed) System.err.println("Kafka: the last exchanges "
              + each.requests("limit=20").replace("{\"number\"", "\n{\"number\""));
          else if (each.called) each.checkFaults();
        } catch (AssertionError error) {
          missed += error.getMessage();
        } catch (IllegalStateException error) { // The cluster may have crashed.
          System.err.println(error.getMessage());
        } finally {
          each.delete();
        }
      }
      if (!missed.isEmpty()) throw new AssertionError(missed);
    }
  }

  final class Control { // the process that serves all clusters
    private static final String START = """
        trap '' HUP INT TERM; folder=$(mktemp -d); trap 'kill $!; wait; rm -r "$folder"' EXIT
        if command -v odradek >/dev/null; then set -- odradek; else set -- python3 -m odradek; fi
        "$@" serve --control --ephemeral --port 0 --override odradek.http.port=0 \\
          --ready-file "$folder/ready" >"$folder/log" 2>&1 </dev/null &
        until [ -s "$folder/ready" ]; do kill -0 $! || { cat "$folder/log" >&2; exit 1; }; sleep 0.01; done
        cat "$folder/ready"; exec >/dev/null 2>&1; cat""";
    // Odradek stops when its standard input is closed, so it also stops if this JVM is killed.
    private static Process process;
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

  final class Extension implements BeforeAllCallback, BeforeEachCallback, ParameterResolver {
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
    private static Cluster made(Odradek options, ExtensionContext context) {
      return new Cluster(Cluster.of(options), context.getStore(ExtensionContext.Namespace.create(Odradek.class))
          .getOrComputeIfAbsent(context.getUniqueId(), id -> new Clusters(context), Clusters.class));
    }
  }
}
