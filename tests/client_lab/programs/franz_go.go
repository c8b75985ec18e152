// Applications based on franz-go, one function each. The last line that is printed is the application's result.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

var at = kgo.SeedBrokers(strings.Split(os.Getenv("ODRADEK_BOOTSTRAP"), ",")...)

func within() context.Context {
	until, _ := context.WithTimeout(context.Background(), 20*time.Second)
	return until
}

func readTwo() (string, error) {
	client, err := kgo.NewClient(at, kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return "", err
	}
	values := []string{}
	for until := within(); len(values) < 2 && until.Err() == nil; {
		client.PollFetches(until).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return "read " + strings.Join(values, ", "), nil
}

func copyOne() (string, error) {
	session, err := kgo.NewGroupTransactSession(at, kgo.TransactionalID("t"), kgo.ConsumerGroup("g"),
		kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return "", err
	}
	session.PollFetches(within())
	if err := session.Begin(); err != nil {
		return "", err
	}
	session.Produce(within(), &kgo.Record{Topic: "copies", Value: []byte("a")}, func(*kgo.Record, error) {})
	committed, err := session.End(within(), kgo.TryCommit)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("committed: %v", committed), nil
}

func oneTransaction() (string, error) {
	client, err := kgo.NewClient(at, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return "", err
	}
	if err := client.BeginTransaction(); err != nil {
		return "", err
	}
	if err := client.ProduceSync(within(), kgo.StringRecord("a")).FirstErr(); err != nil {
		return "", err
	}
	if err := client.EndTransaction(within(), kgo.TryCommit); err != nil {
		return "", err
	}
	return "committed", nil
}

// oneFailedRecord commits a transaction although its only record has failed.
func oneFailedRecord() (string, error) {
	client, err := kgo.NewClient(at, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return "", err
	}
	if err := client.BeginTransaction(); err != nil {
		return "", err
	}
	if client.ProduceSync(within(), kgo.StringRecord("a")).FirstErr() == nil {
		return "sent", nil
	}
	return "committed", client.EndTransaction(within(), kgo.TryCommit)
}

func twoTransactions() (string, error) {
	client, err := kgo.NewClient(at, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return "", err
	}
	for _, value := range []string{"a", "b"} {
		if err := client.BeginTransaction(); err != nil {
			return "", err
		}
		if err := client.ProduceSync(within(), kgo.StringRecord(value)).FirstErr(); err != nil {
			return "", err
		}
		if err := client.EndTransaction(within(), kgo.TryCommit); err != nil {
			return "", err
		}
	}
	return "committed", nil
}

func send() (string, error) {
	client, err := kgo.NewClient(at, kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return "", err
	}
	return "sent", client.ProduceSync(within(), kgo.StringRecord("a")).FirstErr()
}

func readUncommitted() (string, error) {
	client, err := kgo.NewClient(at, kgo.ConsumeTopics("orders"))
	if err != nil {
		return "", err
	}
	read := 0
	for until := within(); read < 2 && until.Err() == nil; {
		client.PollFetches(until).EachRecord(func(*kgo.Record) { read++ })
	}
	return fmt.Sprintf("read %d of 2", read), nil
}

// field returns a field by name, even if it is unexported. It follows a pointer or an atomic value in the field.
func field(of reflect.Value, name string) reflect.Value {
	found := of.FieldByName(name)
	found = reflect.NewAt(found.Type(), unsafe.Pointer(found.UnsafeAddr())).Elem()
	if held, ok := found.Addr().Interface().(*atomic.Value); ok {
		found = reflect.ValueOf(held.Load())
	}
	return reflect.Indirect(found)
}

// sendThreeFromTheEnd sends three records to partition 0. Their sequence numbers start at 2³¹ - 2 instead of 0.
func sendThreeFromTheEnd() (string, error) {
	client, err := kgo.NewClient(at, kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return "", err
	}
	if err := client.ProduceSync(within(), &kgo.Record{Partition: 1}).FirstErr(); err != nil {
		return "", err
	}
	topics := field(field(field(reflect.ValueOf(client).Elem(), "producer"), "topics"), "v")
	partitions := field(field(topics.MapIndex(reflect.ValueOf("orders")).Elem(), "v"), "partitions")
	records := field(partitions.Index(0).Elem(), "records")
	field(records, "needSeqReset").SetBool(false) // Otherwise the first request would reset the sequence number to 0.
	for _, name := range []string{"seq", "batch0Seq"} {
		field(records, name).SetInt(1<<31 - 2)
	}
	for sent := 0; sent < 3 && err == nil; sent++ {
		err = client.ProduceSync(within(), &kgo.Record{Partition: 0}).FirstErr()
	}
	return "sent", err
}

var applications = map[string]func() (string, error){
	"send": send, "twoTransactions": twoTransactions, "readUncommitted": readUncommitted,
	"readTwo": readTwo, "copyOne": copyOne, "oneTransaction": oneTransaction,
	"sendThreeFromTheEnd": sendThreeFromTheEnd, "oneFailedRecord": oneFailedRecord,
}
