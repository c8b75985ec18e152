// Applications based on Sarama, one function each. The last line that is printed is the application's result.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var at = strings.Split(os.Getenv("ODRADEK_BOOTSTRAP"), ",")

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_4_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	return config
}

func send() (string, error) {
	producer, err := sarama.NewSyncProducer(at, config())
	if err != nil {
		return "", err
	}
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder("a")})
	return "sent", err
}

func idempotent() *sarama.Config {
	config := config()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Retry.Backoff = 300 * time.Millisecond
	return config
}

// sendThree sends three records, of which the broker refuses the second.
func sendThree() (string, error) {
	producer, err := sarama.NewSyncProducer(at, idempotent())
	if err != nil {
		return "", err
	}
	for _, value := range []string{"a", "refused", "b"} {
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder(value)})
	}
	return "sent", err
}

// sendMany sends so many records that new ones arrive while earlier ones wait for a retry. One request is in flight at
// a time.
func sendMany() (string, error) {
	const many = 2000
	config := config()
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(at, config)
	if err != nil {
		return "", err
	}
	go func() {
		for number := 0; number < many; number++ {
			producer.Input() <- &sarama.ProducerMessage{Topic: "orders", Metadata: number}
		}
	}()
	inOrder := true
	for number := 0; number < many; number++ {
		select {
		case sent := <-producer.Successes():
			inOrder = inOrder && sent.Offset == int64(sent.Metadata.(int))
		case failed := <-producer.Errors():
			return "", failed.Err
		}
	}
	return fmt.Sprint("in order: ", inOrder), nil
}

var applications = map[string]func() (string, error){"send": send, "sendThree": sendThree, "sendMany": sendMany}
