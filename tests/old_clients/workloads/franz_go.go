// Applications on franz-go, one function each. The last line that one prints is all that it sees.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

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

func main() {
	functions := map[string]func() (string, error){
		"send": send, "twoTransactions": twoTransactions, "readUncommitted": readUncommitted,
		"readTwo": readTwo, "copyOne": copyOne, "oneTransaction": oneTransaction,
	}
	seen, err := functions[os.Args[1]]()
	if err != nil {
		seen = "raised " + err.Error()
	}
	fmt.Println(seen)
}
