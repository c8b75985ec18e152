// Applications based on interceptors of Sarama, one function each. The last line that is printed is the application's
// result.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

// doorkeeper delays the retry of the second record until a third record waits at the producer's input.
type doorkeeper struct {
	producer sarama.AsyncProducer
	passed   int
}

func (d *doorkeeper) OnSend(*sarama.ProducerMessage) {
	if d.passed++; d.passed == 3 {
		go func() { d.producer.Input() <- &sarama.ProducerMessage{Topic: "orders"} }()
		time.Sleep(300 * time.Millisecond)
	}
}

// sendThreeAmongRetries makes Sarama retry the first record as a batch. When the second record follows, Sarama already
// knows that it must look up the leader again.
func sendThreeAmongRetries() (string, error) {
	doorkeeper := &doorkeeper{}
	config := sarama.NewConfig()
	config.Version = sarama.V2_5_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Flush.MaxMessages = 1
	config.Producer.Interceptors = []sarama.ProducerInterceptor{doorkeeper}
	producer, err := sarama.NewAsyncProducer([]string{os.Getenv("ODRADEK_BOOTSTRAP")}, config)
	if err != nil {
		return "", err
	}
	doorkeeper.producer = producer
	producer.Input() <- &sarama.ProducerMessage{Topic: "orders"}
	offsets := []int64{}
	for len(offsets) < 3 {
		select {
		case sent := <-producer.Successes():
			if offsets = append(offsets, sent.Offset); len(offsets) == 1 {
				producer.Input() <- &sarama.ProducerMessage{Topic: "orders"}
			}
		case failed := <-producer.Errors():
			return "", failed.Err
		}
	}
	return fmt.Sprint("sent to offsets ", offsets), nil
}

var applications = map[string]func() (string, error){"sendThreeAmongRetries": sendThreeAmongRetries}
