// Applications based on franz-go with share groups, one function each. The last line that is printed is the
// application's result.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var at = kgo.SeedBrokers(os.Getenv("ODRADEK_BOOTSTRAP"))

func describeOffsets() (string, error) {
	client, err := kgo.NewClient(at)
	if err != nil {
		return "", err
	}
	until, _ := context.WithTimeout(context.Background(), 20*time.Second)
	group := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	group.GroupID = "g"
	request := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	request.Groups = append(request.Groups, group)
	for _, shard := range client.RequestSharded(until, request) {
		if shard.Err != nil {
			return "", shard.Err
		}
	}
	return "described", nil
}

func fromTheFirst(client *kgo.Client) error {
	earliest := "earliest"
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", &earliest
	group := kmsg.NewIncrementalAlterConfigsRequestResource()
	group.ResourceType, group.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "g"
	group.Configs = append(group.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, group)
	_, err := request.RequestWith(context.Background(), client)
	return err
}

// readPaused reads a record, pauses its partition and acknowledges the record. It resumes the partition and reads the
// next record.
func readPaused() (string, error) {
	client, err := kgo.NewClient(at, kgo.ShareGroup("g"), kgo.ConsumeTopics("orders"),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return "", err
	}
	if err := fromTheFirst(client); err != nil {
		return "", err
	}
	until, _ := context.WithTimeout(context.Background(), 20*time.Second)
	records := client.PollRecords(until, 1).Records()
	if len(records) == 0 {
		return "read nothing", nil
	}
	first := map[string][]int32{"orders": {0}}
	client.PauseFetchPartitions(first)
	time.Sleep(time.Second)
	if err := client.ProduceSync(until, &kgo.Record{Topic: "orders", Value: []byte("b")}).FirstErr(); err != nil {
		return "", err
	}
	records[0].Ack(kgo.AckAccept)
	paused, _ := context.WithTimeout(context.Background(), 2*time.Second)
	for paused.Err() == nil {
		client.PollRecords(paused, 1)
	}
	client.ResumeFetchPartitions(first)
	until, _ = context.WithTimeout(context.Background(), 5*time.Second)
	return fmt.Sprint("read ", len(records)+len(client.PollRecords(until, 1).Records()), " of 2"), nil
}

var applications = map[string]func() (string, error){"describeOffsets": describeOffsets, "readPaused": readPaused}
