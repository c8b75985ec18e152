// Runs one scenario of franz-go's consumers in a group: BOOTSTRAP TOPIC GROUP PROTOCOL, where PROTOCOL is "consumer"
// (KIP-848) or "classic". The topic has six partitions with one record in each. Each outcome is printed on a line.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 30 * time.Second

type member struct {
	client *kgo.Client
	owned  atomic.Int64
	read   atomic.Int64
}

func join(bootstrap, topic, group, protocol string) *member {
	m := &member{}
	count := func(by int64) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			for _, each := range partitions {
				m.owned.Add(by * int64(len(each)))
			}
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(count(1)),
		kgo.OnPartitionsRevoked(count(-1)),
		kgo.OnPartitionsLost(count(-1)),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	m.client = client
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			m.read.Add(int64(fetches.NumRecords()))
		}
	}()
	return m
}

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func until(what string, isSo func() bool) {
	for end := time.Now().Add(patience); !isSo(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			fmt.Println("not in time:", what)
			os.Exit(1)
		}
	}
	fmt.Println(what)
}

func main() {
	bootstrap, topic, group, protocol := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	first := join(bootstrap, topic, group, protocol)
	until("alone: 6", func() bool { return first.owned.Load() == 6 })
	until("records: 6", func() bool { return first.read.Load() == 6 })
	check(first.client.CommitUncommittedOffsets(context.Background()))
	fmt.Println("committed")
	second := join(bootstrap, topic, group, protocol)
	until("two: 3+3", func() bool { return first.owned.Load() == 3 && second.owned.Load() == 3 })
	first.client.Close()
	until("alone again: 6", func() bool { return second.owned.Load() == 6 })
	fmt.Println("read again:", second.read.Load())
	second.client.Close()
}
