import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs Kafka's assignors of consumer groups on cases from stdin, one case per line, with fields separated by tabs:
 *
 *   uniform or range; topics as ID=PARTITIONS, separated by commas; then for each member: its id, its instance id or -,
 *   its rack or -, its topics separated by commas, its last target as ID=PARTITION.PARTITION separated by commas
 *
 * Topic ids are hexadecimal. For each case, prints a line with the id of every member that has partitions, each
 * followed by its partitions in the form of a target, separated by tabs.
 */
public class Assign {
    public static void main(String[] arguments) {
        var assignors = Map.<String, ConsumerGroupPartitionAssignor>of(
            "uniform", new UniformAssignor(), "range", new RangeAssignor());
        var lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            var fields = lines.nextLine().split("\t", -1);
            var counts = new HashMap<Uuid, Integer>();
            for (var topic : words(fields[1])) counts.put(id(topic.split("=")[0]), Integer.parseInt(topic.split("=")[1]));
            var members = new HashMap<String, MemberSubscriptionAndAssignmentImpl>();
            var subscriptions = new HashSet<Set<Uuid>>();
            for (int at = 2; at < fields.length; at += 5) {
                var topics = new HashSet<Uuid>();
                for (var topic : words(fields[at + 3])) topics.add(id(topic));
                subscriptions.add(topics);
                members.put(fields[at], new MemberSubscriptionAndAssignmentImpl(
                    given(fields[at + 2]), given(fields[at + 1]), topics, new Assignment(target(fields[at + 4]))));
            }
            var type = subscriptions.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            var taken = new HashMap<Uuid, Map<Integer, String>>();
            members.forEach((member, spec) -> spec.partitions().forEach((topic, partitions) -> partitions.forEach(
                partition -> taken.computeIfAbsent(topic, none -> new HashMap<>()).put(partition, member))));
            var described = new SubscribedTopicDescriber() {
                @Override public int numPartitions(Uuid topic) {
                    return counts.getOrDefault(topic, -1);
                }

                @Override public Set<String> racksForPartition(Uuid topic, int partition) {
                    return Set.of("r" + partition % 3);
                }
            };
            var result = assignors.get(fields[0]).assign(new GroupSpecImpl(members, type, taken), described).members();
            var shown = new TreeMap<String, String>();
            result.forEach((member, assignment) -> {
                var topics = new TreeMap<String, String>();
                assignment.partitions().forEach((topic, partitions) -> {
                    var words = new TreeSet<>(partitions).stream().map(String::valueOf).toList();
                    if (!words.isEmpty()) topics.put(hex(topic), String.join(".", words));
                });
                if (!topics.isEmpty()) shown.put(member, String.join(",", topics.entrySet().stream().map(Object::toString).toList()));
            });
            System.out.println(String.join("\t", shown.entrySet().stream()
                .map(each -> each.getKey() + "\t" + each.getValue()).toList()));
        }
    }

    static String[] words(String field) {
        return field.isEmpty() ? new String[0] : field.split(",");
    }

    static Optional<String> given(String field) {
        return field.equals("-") ? Optional.empty() : Optional.of(field);
    }

    static Uuid id(String hex) {
        return new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    static String hex(Uuid id) {
        return HexFormat.of().toHexDigits(id.getMostSignificantBits()) + HexFormat.of().toHexDigits(id.getLeastSignificantBits());
    }

    static Map<Uuid, Set<Integer>> target(String field) {
        var target = new HashMap<Uuid, Set<Integer>>();
        for (var topic : words(field)) {
            var partitions = new HashSet<Integer>();
            for (var partition : topic.split("=")[1].split("\\.")) partitions.add(Integer.parseInt(partition));
            target.put(id(topic.split("=")[0]), partitions);
        }
        return target;
    }
}
