// Runs one scenario of franz-go's share consumers: BOOTSTRAP TOPIC GROUP. The topic has ten records in one batch, "0"
// to "9", and the group starts at the first one. Each outcome is printed on a line.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 30 * time.Second

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func join(more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{kgo.SeedBrokers(os.Args[1]), kgo.ConsumeTopics(os.Args[2]), kgo.ShareGroup(os.Args[3])}
	client, err := kgo.NewClient(append(options, more...)...)
	check(err)
	return client
}

// poll returns the records of the first poll that is not empty.
func poll(client *kgo.Client) []*kgo.Record {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		fetches := client.PollFetches(ctx)
		check(ctx.Err())
		for _, failed := range fetches.Errors() {
			check(failed.Err)
		}
		if records := fetches.Records(); len(records) > 0 {
			return records
		}
	}
}

func shown(records []*kgo.Record) string {
	words := make([]string, 0, len(records))
	for _, record := range records {
		words = append(words, fmt.Sprintf("%s×%d", record.Value, record.DeliveryCount()))
	}
	sort.Strings(words)
	return strings.Join(words, " ")
}

func acknowledge(client *kgo.Client, status kgo.AckStatus, records ...*kgo.Record) {
	client.MarkAcks(status, records...)
	check(client.FlushAcks(context.Background()))
}

func main() {
	limited := join(kgo.ShareMaxRecords(3), kgo.ShareMaxRecordsStrict())
	three := poll(limited)
	fmt.Println("three:", shown(three))
	other := join()
	rest := poll(other)
	fmt.Println("the others:", shown(rest))
	acknowledge(limited, kgo.AckRenew, three...)
	acknowledge(limited, kgo.AckAccept, three[0])
	acknowledge(limited, kgo.AckReject, three[1])
	acknowledge(limited, kgo.AckRelease, three[2])
	fmt.Println("acknowledged in each way")
	limited.Close()
	acknowledge(other, kgo.AckAccept, rest...)
	again := poll(other)
	fmt.Println("released:", shown(again))
	acknowledge(other, kgo.AckRelease, again...)
	other.Close()
	last := join()
	final := poll(last)
	// The delivery count is not printed. The other consumer prefetches, so it has acquired the record once more before it
	// closes.
	fmt.Println("released again:", string(final[0].Value), len(final))
	acknowledge(last, kgo.AckAccept, final...)
	last.Close()
}
