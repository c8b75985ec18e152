import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines of "message version hex". Decodes each message with Kafka's codec and prints the message as Kafka encodes
 * it again, or "! " and the error.
 */
public class Reencode {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.", "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.coordinator.transaction.generated.", "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    static Message create(String name) throws Exception {
        for (String prefix : PACKAGES)
            for (String suffix : new String[] {"Data", ""})
                try {
                    return (Message) Class.forName(prefix + name + suffix).getDeclaredConstructor().newInstance();
                } catch (ClassNotFoundException | ClassCastException absent) {
                    continue;
                }
        throw new IllegalArgumentException("no class for " + name);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            try {
                Message message = create(parts[0]);
                short version = Short.parseShort(parts[1]);
                ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]));
                message.read(new ByteBufferAccessor(data), version);
                if (data.hasRemaining()) throw new IllegalStateException(data.remaining() + " bytes left");
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(written), cache, version);
                System.out.println(HexFormat.of().formatHex(written.array()));
            } catch (Throwable failed) {
                System.out.println("! " + failed);
            }
        }
    }
}
