package main

import (
	"context"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("ODRADEK_BOOTSTRAP")),
		kgo.ClientID("judged"),
		kgo.DefaultProduceTopic("orders"),
		kgo.TransactionalID("t"),
	)
	if err != nil {
		panic(err)
	}
	until, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 3 {
		if err := client.BeginTransaction(); err != nil {
			panic(err)
		}
		if err := client.ProduceSync(until, kgo.StringRecord("a")).FirstErr(); err != nil {
			panic(err)
		}
		if err := client.EndTransaction(until, kgo.TryCommit); err != nil {
			panic(err)
		}
	}
	client.Close()
}
