package example

import (
	"testing"
	"time"

	"example/odradek"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produced begins a transaction and writes a record in it.
func produced(t *testing.T, kafka *odradek.Cluster) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Bootstrap...), kgo.TransactionalID("t"),
		kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	record := &kgo.Record{Topic: "orders", Value: []byte("a")}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if record.Offset != 0 {
		t.Fatalf("the cluster is not fresh: offset %d", record.Offset)
	}
	return client
}

func TestACommitThatIsRefusedIsRepeated(t *testing.T) {
	kafka := odradek.New(t)
	kafka.Fault(odradek.JSON{
		"name": "busy", "match": odradek.JSON{"api": "EndTxn"},
		"do": odradek.JSON{"error": "CONCURRENT_TRANSACTIONS"}, "times": 3,
	})
	client := produced(t, kafka)
	if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	kafka.Wait(odradek.JSON{"fault": "busy", "hits": 3})
	kafka.Wait(odradek.JSON{"topic": "orders", "last_stable_offset": 2})
}

func TestATransactionThatNobodyEndsTimesOut(t *testing.T) {
	kafka := odradek.New(t, odradek.JSON{"nodes": 3})
	client := produced(t, kafka)
	kafka.Advance(70 * time.Second)
	kafka.Wait(odradek.JSON{"transaction": "t", "state": "CompleteAbort"})
	if err := client.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Fatal("what was aborted is committed")
	}
}
