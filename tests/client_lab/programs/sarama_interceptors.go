// Applications with interceptors of Sarama, one function each. The last line that one prints is all that it sees.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

// Lets a third record wait at the producer's door, before the second, which comes back to be sent again, may pass.
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

// Sarama sends the first record again as a batch, and knows with the second that its leader is to be asked for anew.
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
