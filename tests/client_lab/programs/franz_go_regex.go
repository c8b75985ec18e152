// Applications based on franz-go with a KIP-848 group, one function each. The last line that is printed is the
// application's result.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// slowLog is a logger that blocks for four seconds when the client logs that it has discovered the topic.
type slowLog struct{}

func (slowLog) Level() kgo.LogLevel { return kgo.LogLevelInfo }

func (slowLog) Log(_ kgo.LogLevel, _ string, more ...any) {
	if strings.Contains(fmt.Sprint(more...), "[orders]") {
		time.Sleep(4 * time.Second)
	}
}

func readOne() (string, error) {
	optIn := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	client, err := kgo.NewClient(kgo.WithContext(optIn), kgo.WithLogger(slowLog{}),
		kgo.SeedBrokers(strings.Split(os.Getenv("ODRADEK_BOOTSTRAP"), ",")...),
		kgo.ConsumerGroup("g"), kgo.ConsumeRegex(), kgo.ConsumeTopics("orders.*"),
		kgo.MetadataMinAge(500*time.Millisecond), kgo.MetadataMaxAge(time.Second), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return "", err
	}
	until, _ := context.WithTimeout(context.Background(), 20*time.Second)
	for until.Err() == nil {
		for _, record := range client.PollFetches(until).Records() {
			return "read " + string(record.Value), nil
		}
	}
	return "read nothing", nil
}

var applications = map[string]func() (string, error){"readOne": readOne}
