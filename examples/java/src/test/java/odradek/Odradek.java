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
 * A fresh Kafka cluster for each test, or class where the field is static: {@code @Odradek Cluster cluster}. It is
 * deleted after everything else that JUnit closes, such as fields with {@code @AutoClose}. The first
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
  String[] listeners() default {}; // each in JSON: "{\"protocol\": \"SASL_SSL\"}"
  String[] users() default {}; // with passwords: "alice=secret"
  String preset() default ""; // the name of a rare state, or {"name": …, "parameters": {…}}
  String emulate() default ""; // a release of Kafka, such as "4.0"
  int ttlS() default 0; // seconds after which it is deleted; 0: it stays

  /** One cluster. Rules, conditions and answers are JSON: see docs/testing.md of Odradek. */
  final class Cluster {
    public final String id;
    public final String bootstrap; // of the first listener
    private final String told; // the answer of POST /clusters
    private final String path;
    private final Clusters test; // that it belongs to
    private boolean called; // so there may be rules
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
          + "\"ttl_s\":%s}").formatted(nodes, object(options.settings(), true), object(options.topics(), false),
          options.listeners().length == 0 ? "null" : "[" + String.join(",", options.listeners()) + "]",
          options.users().length == 0 ? "null" : object(options.users(), true), preset, orNull(options.emulate()),
          options.ttlS() == 0 ? "null" : options.ttlS());
    }

    private static String object(String[] fields, boolean isText) {
      return "{" + String.join(",", Arrays.stream(fields).map(each -> each.split("=", 2))
          .map(each -> text(each[0]) + ":" + (isText ? text(each[1]) : each[1])).toList()) + "}";
    }

    /** A text as JSON. */
    public static String text(String text) {
      StringBuilder found = new StringBuilder("\"");
      text.chars().forEach(each -> found.append(
          each < ' ' || each == '"' || each == '\\' ? "\\u%04x".formatted(each) : Character.toString(each)));
      return found.append('"').toString();
    }

    private static String orNull(String text) { return text == null || text.isEmpty() ? "null" : text(text); }

    /** The bootstrap address of the listener with this name, which is in upper case. */
    public String bootstrap(String listener) {
      return found("\"name\": \"" + listener + "\", \"protocol\": \"\\w+\", \"bootstrap\": \"([^\"]+)\"", told);
    }

    /** PEM of the authority that clients trust, where a listener has TLS. */
    public String caCertificate() { return found("\"ca_certificate\": \"([^\"]+)\"", told).replace("\\n", "\n"); }

    /** PEM of this user's key and certificate, where a listener asks for them. */
    public String clientCertificate(String user) {
      return found("\"" + Pattern.quote(user) + "\": \"(-----BEGIN[^\"]+)\"", told).replace("\\n", "\n");
    }

    /** A copy of this cluster, deleted at the end of the same test. */
    public Cluster fork() {
      Cluster fork = new Cluster("{\"fork\":" + text(id) + "}", test);
      fork.called = true; // it may have rules of its preset
      return fork;
    }

    /** Adds a rule. If it has done nothing, the test fails. */
    public void fault(String rule) { call("POST", "/faults", rule); }

    /** The rules, with "matched", "hits", and "unmade": how many answers could not be edited. */
    public String faults() { return call("GET", "/faults", ""); }

    /** Throws AssertionError if nothing has matched a rule, or no answer had what it edits. The end of the test calls it. */
    public void checkFaults() {
      List<String> unused = parts(faults()).stream().filter(Cluster::isUnused).toList();
      if (!unused.isEmpty()) throw new AssertionError("these rules have done nothing: " + unused);
    }

    private static boolean isUnused(String rule) {
      return member(rule, "matched").equals(member(rule, "unmade")) && !member(rule, "unused").equals("\"ok\"");
    }

    /** The value of a member of a JSON object, as it is written; "" if there is none. */
    private static String member(String object, String name) {
      String begin = "\"" + name + "\":";
      return parts(object).stream().filter(each -> each.startsWith(begin)).findFirst()
          .map(each -> each.substring(begin.length()).strip()).orElse("");
    }

    /** The items of a JSON list, or the members of a JSON object, as they are written. */
    private static List<String> parts(String json) {
      List<String> parts = new ArrayList<>();
      boolean isText = false;
      int begin = 1;
      for (int at = 0, depth = 0; at < json.length(); at++) {
        char each = json.charAt(at);
        if (isText && each == '\\') at++; // what is escaped does not end the text
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

    /** Deletes the rule of this name. */
    public void clearFaults(String name) { call("DELETE", "/faults/" + escaped(name), ""); }

    /** How many wait at each hold. */
    public String holds() { return call("GET", "/holds", ""); }

    /** Lets all that wait at this hold continue, and returns their number. */
    public int release(String hold) {
      return Integer.parseInt(found("\"released\": (\\d+)", call("POST", "/holds/" + escaped(hold) + "/release", "")));
    }

    /** Waits up to ten seconds for a condition, such as {@code {"topic": "orders", "log_end_offset": 1}}. */
    public String await(String condition) { return call("POST", "/wait", condition); }

    /** The last exchanges, decoded, the oldest first; where: "", or such as "since=7&api=Fetch". */
    public String requests(String where) { return call("GET", "/requests?" + where, ""); }

    /** Leader, epoch and offsets of each partition. */
    public String partitions() { return rows("partitions"); }

    /** Each transactional id, with its state. */
    public String transactions() { return rows("transactions"); }

    /** Groups of every type, with their state and members. */
    public String groups() { return rows("groups"); }

    /** Share partitions in memory, with their records in flight. */
    public String sharePartitions() { return rows("share_partitions"); }

    /** The state of each producer id in each partition. */
    public String producers() { return rows("producers"); }

    /** Fetch sessions and share sessions. */
    public String sessions() { return rows("sessions"); }

    /** The open connections. */
    public String connections() { return rows("connections"); }

    private String rows(String name) {
      StringJoiner rows = new StringJoiner(", ", "[", "]");
      boolean more = true;
      for (int skip = 0; more; skip += 1000) { // of a page
        String page = call("GET", "/" + name + "?skip=" + skip + "&limit=1000", "");
        more = page.endsWith("\"more\": true}");
        rows.add(page.substring(page.indexOf('[') + 1, page.lastIndexOf(']')));
      }
      return rows.toString();
    }

    /** Brings a rare state about and returns its facts; parameters: JSON, {@code {"topic": "orders"}}. */
    public String preset(String name, String parameters) {
      return call("POST", "/presets/" + escaped(name), parameters);
    }

    /** The rare states that there are, with their parameters. */
    public String presets() { return call("GET", "/presets", ""); }

    /** Gives rare but lawful answers from now on; seed 0 ends it. */
    public String odd(int seed) { return call("POST", "/odd", "{\"seed\":" + seed + "}"); }

    /** The seed, and how often each rare answer was given. */
    public String odd() { return call("GET", "/odd", ""); }

    /** Copies log and clock. */
    public void checkpoint(String name) { call("POST", "/checkpoint", "{\"name\":" + text(name) + "}"); }

    /** Goes back to a checkpoint. Connections are cut; the ports stay. */
    public void rewind(String name) { call("POST", "/rewind", "{\"name\":" + text(name) + "}"); }

    /** Leaves on the disk what {@code kill -9} leaves. */
    public void crash() { call("POST", "/crash", ""); }

    /** Starts again on the same ports; clean: it stops in good order before. */
    public void restart(boolean clean) { call("POST", "/restart", "{\"clean\":" + clean + "}"); }

    /** Id, host, port and state of each node. */
    public String nodes() { return found("\"nodes\": (\\[.*?\\])", call("GET", "", "")); }

    /** clean: other nodes lead from now on; else metadata takes it for alive for 9 s of the cluster's time. */
    public void stopNode(int node, boolean clean) {
      call("POST", "/nodes/" + node + "/stop", "{\"clean\":" + clean + "}");
    }

    public void startNode(int node) { call("POST", "/nodes/" + node + "/start", ""); }

    /** The node is unreachable for this client until the rule is deleted. */
    public void cutOff(int node, String clientId) {
      call("POST", "/nodes/" + node + "/unreachable_for", "{\"client_id\":" + text(clientId) + "}");
    }

    /** The node leads the partition in a new leader epoch. */
    public void moveLeader(String topic, int partition, int node) {
      call("POST", "/partitions/" + escaped(topic) + "/" + partition + "/leader", "{\"node\":" + node + "}");
    }

    /** kind: group, transaction or share. The coordinator reads its log anew. */
    public void moveCoordinator(String kind, String key, int node) {
      call("POST", "/coordinators/" + kind + "/" + escaped(key), "{\"node\":" + node + "}");
    }

    /** Leaders tell consumers of this rack to read from this node (KIP-392); null: the node is in no rack. */
    public void putInRack(int node, String rack) {
      call("POST", "/nodes/" + node + "/rack", "{\"rack\":" + orNull(rack) + "}");
    }

    /** The node, a follower, has the log below the offset; null: all of it. */
    public void follow(String topic, int partition, int node, Long end) {
      call("POST", "/partitions/" + escaped(topic) + "/" + partition + "/follower",
          "{\"node\":" + node + ",\"end\":" + end + "}");
    }

    /** An unclean election: what is not wholly below the offset is lost. node: the next leader; null: the same. */
    public String truncate(String topic, int partition, long offset, Integer node) {
      return call("POST", "/partitions/" + escaped(topic) + "/" + partition + "/truncate",
          "{\"offset\":" + offset + ",\"node\":" + node + "}");
    }

    /** The cluster's time. */
    public Instant now() {
      return Instant.ofEpochMilli(Long.parseLong(found("\"now_ms\": (\\d+)", call("GET", "/clock", ""))));
    }

    /** Stops the cluster's clock. */
    public void freeze() { call("POST", "/clock/freeze", ""); }

    /** The clock runs again. */
    public void resume() { call("POST", "/clock/resume", ""); }

    /** Moves the cluster's clock; returns when all that became due has happened. */
    public void advance(Duration time) { call("POST", "/clock/advance", "{\"ms\":" + time.toMillis() + "}"); }

    /** Sets the cluster's clock. */
    public void setClock(Instant time) { call("POST", "/clock/set", "{\"ms\":" + time.toEpochMilli() + "}"); }

    /** Writes what clients send and get from now on to a file, for odradek judge, until the cluster is deleted. */
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

    /** It is deleted after this time from now on, unless it is leased again; null: it stays. */
    public void lease(Duration time) {
      call("POST", "/lease", "{\"ttl_s\":" + (time == null ? null : time.toSeconds()) + "}");
    }

    /** Cuts its connections and removes its files, before the test ends. */
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

    /** Any other call of the control interface; throws IllegalStateException with its words if it is refused. */
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
        if (!refused) return new String(answer, StandardCharsets.UTF_8);
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

  /** The clusters of a test. JUnit closes them when it has closed all else of the test. */
  final class Clusters implements ExtensionContext.Store.CloseableResource {
    private final Deque<Cluster> made = new ArrayDeque<>();
    private final ExtensionContext test;

    private Clusters(ExtensionContext test) { this.test = test; }

    @Override public void close() {
      boolean failed = test.getExecutionException().isPresent();
      String missed = ""; // all clusters are deleted before it is told
      for (Cluster each = made.poll(); each != null; each = made.poll()) {
        if (each.deleted) continue;
        try {
          if (failed) System.err.println("Kafka: the last exchanges "
              + each.requests("limit=20").replace("{\"number\"", "\n{\"number\""));
          else if (each.called) each.checkFaults();
        } catch (AssertionError error) {
          missed += error.getMessage();
        } catch (IllegalStateException error) { // it may have crashed
          System.err.println(error.getMessage());
        } finally {
          each.delete();
        }
      }
      if (!missed.isEmpty()) throw new AssertionError(missed);
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
