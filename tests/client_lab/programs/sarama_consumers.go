// Applications based on consumers of Sarama, one function each. The last line that is printed is the application's
// result.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func readThreeInRack() (string, error) {
	config := config()
	config.RackID = "near"
	return readThree(config)
}

func readThreeOfTheLeader() (string, error) {
	config := config()
	config.Metadata.RefreshFrequency = 500 * time.Millisecond
	return readThree(config)
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_4_0_0
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	return config
}

func readThree(config *sarama.Config) (string, error) {
	consumer, err := sarama.NewConsumer(strings.Split(os.Getenv("ODRADEK_BOOTSTRAP"), ","), config)
	if err != nil {
		return "", err
	}
	reader, err := consumer.ConsumePartition("orders", 0, sarama.OffsetOldest)
	if err != nil {
		return "", err
	}
	until := time.After(25 * time.Second)
	for read := 0; read < 3; read++ {
		select {
		case <-reader.Messages():
		case <-until:
			return fmt.Sprint("read ", read, " of 3"), nil
		}
	}
	return "read 3 of 3", nil
}

var applications = map[string]func() (string, error){
	"readThreeInRack": readThreeInRack, "readThreeOfTheLeader": readThreeOfTheLeader,
}
