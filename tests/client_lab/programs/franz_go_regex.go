// Applications on franz-go with a group of KIP-848, one function each. The last line that one prints is all it sees.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A log that is slow to tell of a topic that has become known.
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
