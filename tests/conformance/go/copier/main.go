// Copies a topic in transactions with franz-go's GroupTransactSession until SIGTERM, as tests/crash/copier.py does. The
// only argument is the job as JSON. Before each step, a JSON line that describes the step is written to the journal.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	gaveUp         = 3
	clockMonotonic = 1
)

type job struct {
	Bootstrap, Source, Target, Group, Journal, Protocol string
	TransactionalID                                     string `json:"transactional_id"`
	PerTransaction                                      int    `json:"per_transaction"`
	Aborts                                              float64
	Seed                                                int64
}

// now returns the machine's monotonic clock in ns, as in the other copiers. Package time does not expose this clock.
func now() int64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gave up:", err)
		os.Exit(gaveUp)
	}
}

func main() {
	var j job
	check(json.Unmarshal([]byte(os.Args[1]), &j))
	journal, err := os.OpenFile(j.Journal, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	check(err)
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(j.Bootstrap, ",")...),
		kgo.ClientID(j.TransactionalID),
		kgo.TransactionalID(j.TransactionalID),
		kgo.TransactionTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(j.Group),
		kgo.ConsumeTopics(j.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(2 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if j.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	chance := rand.New(rand.NewSource(j.Seed))
	for count := 1; ; count++ {
		fetches := session.PollRecords(ctx, j.PerTransaction)
		if ctx.Err() != nil {
			break
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		transaction := fmt.Sprintf("%s of %d, %d", j.TransactionalID, os.Getpid(), count)
		note := func(event string, more map[string]any) {
			row := map[string]any{"at": now(), "event": event, "transaction": transaction}
			for name, value := range more {
				row[name] = value
			}
			line, err := json.Marshal(row)
			check(err)
			_, err = journal.Write(append(line, '\n'))
			check(err)
		}
		check(session.Begin())
		first := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(r *kgo.Record) {
			value := "copy of " + string(r.Value)
			note("send", map[string]any{"partition": r.Partition, "value": value})
			copied := &kgo.Record{Topic: j.Target, Partition: r.Partition, Key: r.Key, Value: []byte(value)}
			session.Produce(context.Background(), copied, first.Promise())
		})
		wanted := kgo.TransactionEndTry(first.Err() == nil && chance.Float64() >= j.Aborts)
		if wanted == kgo.TryCommit {
			note("ask", nil)
		}
		committed, err := session.End(context.Background(), wanted)
		check(err)
		note("answer", map[string]any{"committed": committed})
	}
	session.Close()
}
