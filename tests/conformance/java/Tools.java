import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.kafka.common.utils.*; // Exit, up to Kafka 4.3
import org.apache.kafka.common.utils.internals.*; // Exit, as of Kafka 4.4

/**
 * Runs Kafka's command-line tools in one JVM, several at a time, because a JVM for each tool would take a second or
 * two. Reads one JSON object per line, {id, main, args, stdin}. Prints {id, status, stdout, stderr} when the tool ends.
 */
public class Tools {
    static final ObjectMapper JSON = new ObjectMapper();

    /** The standard streams of one run of a tool, including every thread that it starts. */
    static final class Streams {
        final InputStream in;
        final ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        final List<Runnable> atExit = new ArrayList<>();
        // This is the status of the first exit, because some tools catch the error that ends them, and exit again.
        Integer status;

        Streams(byte[] in) {
            this.in = new ByteArrayInputStream(in);
        }
    }

    static final InheritableThreadLocal<Streams> CURRENT = new InheritableThreadLocal<>();

    static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    static void exit(int status, String message) {
        Streams streams = CURRENT.get();
        if (streams != null && streams.status == null) streams.status = status;
        throw new Ended();
    }

    static final class Input extends InputStream {
        @Override public int read() throws IOException {
            return CURRENT.get() == null ? -1 : CURRENT.get().in.read();
        }

        @Override public int read(byte[] into, int from, int size) throws IOException {
            return CURRENT.get() == null ? -1 : CURRENT.get().in.read(into, from, size);
        }
    }

    static PrintStream dispatching(PrintStream otherwise, Function<Streams, OutputStream> which) {
        return new PrintStream(new OutputStream() {
            OutputStream now() {
                Streams streams = CURRENT.get();
                return streams == null ? otherwise : which.apply(streams);
            }

            @Override public void write(int b) throws IOException {
                now().write(b);
            }

            @Override public void write(byte[] from, int start, int size) throws IOException {
                now().write(from, start, size);
            }
        }, true, StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        InputStream requests = System.in;
        PrintStream answers = System.out;
        System.setIn(new Input());
        System.setOut(dispatching(System.err, streams -> streams.out));
        System.setErr(dispatching(System.err, streams -> streams.err));
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        Exit.setShutdownHookAdder((name, hook) -> CURRENT.get().atExit.add(hook));
        var lines = new BufferedReader(new InputStreamReader(requests, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            var request = (ObjectNode) JSON.readTree(line);
            var thread = new Thread(() -> run(request, answers), request.get("main").asText());
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    static void run(ObjectNode request, PrintStream answers) {
        var streams = new Streams(request.get("stdin").asText().getBytes(StandardCharsets.UTF_8));
        CURRENT.set(streams);
        String[] words = JSON.convertValue(request.get("args"), String[].class);
        try {
            Class.forName(request.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) words);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                thrown.getCause().printStackTrace(System.err);
                if (streams.status == null) streams.status = 1; // the status of the java launcher
            }
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace(System.err);
            streams.status = 127;
        }
        streams.atExit.forEach(Runnable::run);
        System.out.flush();
        System.err.flush();
        var answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        answer.put("status", streams.status == null ? 0 : streams.status);
        answer.put("stdout", streams.out.toString(StandardCharsets.UTF_8));
        answer.put("stderr", streams.err.toString(StandardCharsets.UTF_8));
        synchronized (answers) {
            answers.println(answer);
        }
    }
}
