// A driver for `odradek judge --suite` that uses franz-go. In its directory, first run
// `go mod init driver && go get github.com/twmb/franz-go`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type answer struct {
	Records       []string `json:"records,omitempty"`
	Error         string   `json:"error,omitempty"`
	Unimplemented bool     `json:"unimplemented,omitempty"`
}

var (
	producer, consumer *kgo.Client
	shares             bool
	asked              []kgo.Opt // settings from the command `set`
	always             = context.Background()
	nextGeneration     = context.WithValue(always, "opt_in_kafka_next_gen_balancer_beta", true)
)

func client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options,
		kgo.SeedBrokers(strings.Split(os.Getenv("ODRADEK_BOOTSTRAP"), ",")...),
		kgo.ClientID("judged"),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
	)...)
}

func producing() (*kgo.Client, error) {
	if producer != nil {
		return producer, nil
	}
	options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if id := os.Getenv("ODRADEK_TRANSACTIONAL_ID"); id != "" {
		options = append(options, kgo.TransactionalID(id))
	} else if os.Getenv("ODRADEK_IDEMPOTENCE") == "off" {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	made, err := client(options...)
	producer = made
	return made, err
}

func produce(topic, partition string, values []string) error {
	number, err := strconv.Atoi(partition)
	if err != nil {
		return err
	}
	made, err := producing()
	if err != nil {
		return err
	}
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(number), Value: []byte(value)})
	}
	return made.ProduceSync(always, records...).FirstErr()
}

func begin() error {
	made, err := producing()
	if err != nil {
		return err
	}
	return made.BeginTransaction()
}

func end(how kgo.TransactionEndTry) error {
	made, err := producing()
	if err != nil {
		return err
	}
	return made.EndTransaction(always, how)
}

func set(name, value string) bool {
	switch {
	case name == "protocol" && value == "consumer":
		// Same effect as kgo.ServerSideBalancer, which releases before 1.22 do not have.
		asked = append(asked, kgo.WithContext(nextGeneration), kgo.Balancers(kgo.RangeBalancer()))
	case name == "assignor" && value == "cooperative-sticky":
		asked = append(asked, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case name == "rack":
		asked = append(asked, kgo.Rack(value))
	case name == "create_topics" && value == "off": // the default of the client
	default:
		return false
	}
	return true
}

func subscribe(topic string) (err error) {
	if consumer != nil {
		consumer.AddConsumeTopics(topic)
		return nil
	}
	options := append(asked,
		kgo.ConsumerGroup(os.Getenv("ODRADEK_GROUP")),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DisableAutoCommit(),
	)
	if id := os.Getenv("ODRADEK_GROUP_INSTANCE_ID"); id != "" {
		options = append(options, kgo.InstanceID(id))
	}
	consumer, err = client(options...)
	return err
}

func share(topic string) (err error) {
	consumer, err = client(kgo.ShareGroup(os.Getenv("ODRADEK_GROUP")), kgo.ConsumeTopics(topic))
	shares = true
	return err
}

func ack() error {
	if !shares {
		return consumer.CommitUncommittedOffsets(always)
	}
	consumer.MarkAcks(kgo.AckAccept)
	return consumer.FlushAcks(always)
}

func create(topic string) error {
	admin, err := client()
	if err != nil {
		return err
	}
	defer admin.Close()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 1, 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	told, err := request.RequestWith(always, admin)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(told.Topics[0].ErrorCode)
}

func groups() (found []string, err error) {
	admin, err := client()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	told, err := kmsg.NewPtrListGroupsRequest().RequestWith(always, admin)
	if err != nil {
		return nil, err
	}
	for _, each := range told.Groups {
		found = append(found, each.Group)
	}
	return found, kerr.ErrorForCode(told.ErrorCode)
}

// offsets requests the offsets of the share group. The module sends the request to the coordinator.
func offsets() error {
	admin, err := client()
	if err != nil {
		return err
	}
	defer admin.Close()
	wanted := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	wanted.GroupID = os.Getenv("ODRADEK_GROUP")
	request := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	request.Groups = append(request.Groups, wanted)
	told, err := request.RequestWith(always, admin)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(told.Groups[0].ErrorCode)
}

func poll(timeoutMs string) (values []string, err error) {
	ms, err := strconv.Atoi(timeoutMs)
	if err != nil {
		return nil, err
	}
	until, cancel := context.WithTimeout(always, time.Duration(ms)*time.Millisecond)
	defer cancel()
	fetched := consumer.PollFetches(until)
	fetched.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	fetched.EachError(func(_ string, _ int32, each error) {
		var left *kgo.ErrGroupSession // not a failure: the client joins again on its own
		if !errors.Is(each, context.DeadlineExceeded) && !errors.As(each, &left) {
			err = each
		}
	})
	return values, err
}

func act(words []string) (told answer) {
	var err error
	switch words[0] {
	case "produce":
		err = produce(words[1], words[2], words[3:])
	case "begin":
		err = begin()
	case "commit":
		err = end(kgo.TryCommit)
	case "abort":
		err = end(kgo.TryAbort)
	case "subscribe":
		err = subscribe(words[1])
	case "poll":
		told.Records, err = poll(words[1])
	case "ack":
		err = ack()
	case "set":
		told.Unimplemented = !set(words[1], words[2])
	case "share":
		err = share(words[1])
	case "create":
		err = create(words[1])
	case "groups":
		told.Records, err = groups()
	case "offsets":
		err = offsets()
	default:
		told.Unimplemented = true
	}
	if err != nil {
		told.Error = err.Error()
	}
	return told
}

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		line, err := json.Marshal(act(strings.Fields(lines.Text())))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
	for _, each := range []*kgo.Client{producer, consumer} {
		if each != nil {
			each.Close()
		}
	}
}
