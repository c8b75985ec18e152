package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import odradek.Odradek;
import odradek.Odradek.Cluster;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;

/** A cluster is deleted after a test has closed everything else, so clients can still reach it while they close. */
@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class ClusterOutlivesTest {
  private static final List<String> CLOSED = new ArrayList<>();

  @Odradek Cluster cluster;
  @Odradek static Cluster ofClass;
  @AutoClose final AutoCloseable client = () -> look(cluster, "field");
  @AutoClose static final AutoCloseable CLIENT = () -> look(ofClass, "static field");

  private static void look(Cluster cluster, String what) {
    cluster.call("GET", "/clock", "");
    CLOSED.add(what);
  }

  @AfterEach
  void disconnect() {
    look(cluster, "method");
  }

  @Test
  @Order(1)
  void aTestClosesItsClients() {}

  @Test
  @Order(2)
  void theTestBeforeHasFoundItsCluster() {
    assertEquals(List.of("method", "field"), CLOSED);
  }
}
