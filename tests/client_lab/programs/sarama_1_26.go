// An application based on Sarama 1.26, which does not support racks. The last line that is printed is its result.
package main

import (
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func readForAWhile() (string, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	consumer, err := sarama.NewConsumer(strings.Split(os.Getenv("ODRADEK_BOOTSTRAP"), ","), config)
	if err != nil {
		return "", err
	}
	if _, err := consumer.ConsumePartition("orders", 0, sarama.OffsetOldest); err != nil {
		return "", err
	}
	time.Sleep(2 * time.Second)
	return "read", nil
}

var applications = map[string]func() (string, error){"readForAWhile": readForAWhile}
