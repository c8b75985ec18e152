package example

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example/odradek"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// sent produces the records, each in a separate request.
func sent(t *testing.T, seeds []string, count int, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(seeds...), kgo.ClientID("payer"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for range count {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return client
}

func orders(partitions int) odradek.JSON {
	return odradek.JSON{"topics": odradek.JSON{"orders": partitions}}
}

func TestARequestIsHeldUntilItIsReleased(t *testing.T) {
	kafka := odradek.New(t, orders(1))
	kafka.Fault(odradek.JSON{
		"name": "slow/1", "match": odradek.JSON{"api": "Produce"}, "at": "received", "do": odradek.JSON{"hold": "send"},
	})
	client := sent(t, kafka.Bootstrap, 0)
	done := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: "orders"}, func(_ *kgo.Record, err error) { done <- err })
	kafka.Wait(odradek.JSON{"hold": "send"})
	if holds := kafka.Holds(); holds["send"] != 1 {
		t.Fatal(holds)
	}
	if count := kafka.Release("send"); count != 1 {
		t.Fatal(count)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	kafka.CheckFaults()
	kafka.ClearFaults("slow/1")
	if rules := kafka.Faults(); len(rules) != 0 {
		t.Fatal(rules)
	}
}

func TestAClusterBeginsWithTheRecordsOfItsSeed(t *testing.T) {
	records := []odradek.JSON{{"key": "a", "value": "one tea"}}
	topic := odradek.JSON{"name": "orders", "partitions": 1, "records": records}
	kafka := odradek.New(t, odradek.JSON{"seed": odradek.JSON{"topics": []odradek.JSON{topic}}})
	kafka.Wait(odradek.JSON{"topic": "orders", "partition": 0, "log_end_offset": 1})
}

func TestARuleThatCouldEditNoAnswerIsUnused(t *testing.T) {
	kafka := odradek.New(t, orders(1))
	kafka.Fault(odradek.JSON{"match": odradek.JSON{"api": "Metadata"}, "do": odradek.JSON{"observe": true}})
	kafka.Fault(odradek.JSON{
		"match": odradek.JSON{"api": "Metadata"}, "at": "applied",
		"do": odradek.JSON{"edit": odradek.JSON{"topics[7].errorCode": 3}},
	})
	sent(t, kafka.Bootstrap, 1)
	for index, rule := range kafka.Faults() {
		if rule["matched"] == 0.0 || odradek.IsUnused(rule) != (index == 1) {
			t.Fatal(rule)
		}
	}
	kafka.ClearFaults()
}

func TestTheClockStopsMovesAndIsSet(t *testing.T) {
	kafka := odradek.New(t)
	kafka.Freeze()
	now := kafka.Now()
	kafka.Advance(time.Second)
	if at := kafka.Now(); at != now.Add(time.Second) {
		t.Fatal(at)
	}
	kafka.SetClock(now.Add(5 * time.Second))
	if at := kafka.Now(); at != now.Add(5*time.Second) {
		t.Fatal(at)
	}
	kafka.Resume()
}

func TestLeadersAndCoordinatorsMoveAndNodesStop(t *testing.T) {
	kafka := odradek.New(t, orders(1), odradek.JSON{"nodes": []int{1, 2, 3}})
	kafka.Preset("open-transaction", odradek.JSON{"transactional_id": "a/b"})
	kafka.MoveLeader("orders", 0, 3)
	for _, each := range kafka.Partitions() {
		if each["topic"] == "orders" && each["leader"] != 3.0 {
			t.Fatal(each)
		}
	}
	kafka.MoveCoordinator("transaction", "a/b", 2)
	kafka.Wait(odradek.JSON{"transaction": "a/b", "state": "Ongoing"})
	if rows := kafka.Transactions(); rows[0]["transaction"] != "a/b" {
		t.Fatal(rows)
	}
	kafka.StopNode(3, true)
	if nodes := kafka.Nodes(); nodes[2]["state"] != "stopped" {
		t.Fatal(nodes)
	}
	kafka.StartNode(3)
	kafka.CutOff(2, "nobody")
	kafka.ClearFaults()
	kafka.PutInRack(2, "r")
	kafka.PutInRack(2, "")
	end := int64(0)
	kafka.Follow("orders", 0, 2, &end)
	kafka.Follow("orders", 0, 2, nil)
}

func TestAClusterGoesBackCrashesAndStartsAgain(t *testing.T) {
	kafka := odradek.New(t, orders(1))
	sent(t, kafka.Bootstrap, 2).Close()
	kafka.Checkpoint("two")
	if facts := kafka.Truncate("orders", 0, 0, nil); facts["log_end_offset"] != 0.0 {
		t.Fatal(facts)
	}
	kafka.Rewind("two")
	kafka.Lease(time.Hour)
	if len(kafka.Presets()) == 0 {
		t.Fatal("there are presets")
	}
	for _, each := range []*odradek.Cluster{kafka, kafka.Fork()} {
		each.Wait(odradek.JSON{"topic": "orders", "log_end_offset": 2})
	}
	kafka.Crash()
	kafka.Restart(false)
	kafka.Wait(odradek.JSON{"topic": "orders", "log_end_offset": 2})
}

func TestRequestsStateAndRareAnswersAreRead(t *testing.T) {
	kafka := odradek.New(t, orders(1))
	file := filepath.Join(t.TempDir(), "recording")
	kafka.Record(file)
	kafka.Odd(7, map[string]int{"cut write": 0})
	if told := kafka.Oddities(); told["seed"] != 7.0 {
		t.Fatal(told)
	}
	kafka.Odd(0, nil)
	sent(t, kafka.Bootstrap, 1)
	if found := kafka.Requests(url.Values{"api": {"Produce"}}); found[0]["client_id"] != "payer" {
		t.Fatal(found)
	}
	if kafka.Requests(nil) == nil || len(kafka.Connections()) == 0 || len(kafka.Producers()) != 1 {
		t.Fatal("the client has left no traces")
	}
	if len(kafka.Groups())+len(kafka.SharePartitions())+len(kafka.Sessions()) != 0 {
		t.Fatal("there are groups and sessions that no client has made")
	}
	kafka.Delete()
	if recording, err := os.ReadFile(file); err != nil || !strings.Contains(string(recording), "orders") {
		t.Fatal(err, len(recording))
	}
}

func TestAClientLogsInOverTLS(t *testing.T) {
	kafka := odradek.New(t, orders(1), odradek.JSON{
		"nodes":     2,
		"listeners": []odradek.JSON{{"name": "open"}, {"name": "secure", "protocol": "SASL_SSL"}},
		"users":     odradek.JSON{"alice": "secret"},
	})
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(kafka.CACertificate))
	secure := kafka.Listeners["SECURE"]
	for _, mechanism := range []sasl.Mechanism{
		plain.Auth{User: "alice", Pass: "secret"}.AsMechanism(),
		scram.Auth{User: "alice", Pass: "secret"}.AsSha512Mechanism(),
	} {
		sent(t, secure.Bootstrap, 1, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}), kgo.SASL(mechanism))
	}
	sent(t, kafka.Bootstrap, 1)
	kafka.Wait(odradek.JSON{"topic": "orders", "log_end_offset": 3})
}

// Cleanups run in reverse order. A cleanup that a test registers after New therefore still finds its cluster.
func TestTheClusterOutlivesAllThatTheTestRegisters(t *testing.T) {
	kafka := odradek.New(t)
	t.Cleanup(func() { kafka.Now() })
	t.Run("and its parts", func(t *testing.T) {
		t.Parallel()
		t.Cleanup(func() { kafka.Now() })
	})
}
