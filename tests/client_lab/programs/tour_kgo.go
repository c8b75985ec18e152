package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func client(options ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{
		kgo.SeedBrokers(os.Getenv("ODRADEK_BOOTSTRAP")), kgo.ClientID("judged"), kgo.DefaultProduceTopic("orders"),
	}
	made, err := kgo.NewClient(append(base, options...)...)
	if err != nil {
		panic(err)
	}
	return made
}

func say(err error) {
	if err != nil {
		fmt.Println(err)
	}
}

func produces(until context.Context) {
	producer := client()
	defer producer.Close()
	for range 20 {
		say(producer.ProduceSync(until, kgo.StringRecord("a")).FirstErr())
	}
}

func commits(until context.Context) {
	producer := client(kgo.TransactionalID("t"))
	defer producer.Close()
	for number := range 4 {
		say(producer.BeginTransaction())
		say(producer.ProduceSync(until, kgo.StringRecord("a")).FirstErr())
		say(producer.EndTransaction(until, kgo.TransactionEndTry(number != 1)))
	}
}

func consumes(until context.Context) {
	consumer := client(
		kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.SessionTimeout(6*time.Second), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit(),
	)
	defer consumer.Close()
	for until.Err() == nil {
		if fetched := consumer.PollFetches(until); fetched.NumRecords() > 0 {
			say(consumer.CommitUncommittedOffsets(until))
		}
	}
}

func within(seconds time.Duration, work func(context.Context)) {
	until, cancel := context.WithTimeout(context.Background(), seconds*time.Second)
	defer cancel()
	work(until)
}

func main() {
	within(20, produces)
	within(20, commits)
	within(8, consumes)
}
