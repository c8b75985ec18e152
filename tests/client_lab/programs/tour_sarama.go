package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "judged"
	made.Version = sarama.V2_8_0_0
	made.Producer.Return.Successes = true
	made.Producer.Idempotent = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Net.MaxOpenRequests = 1
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	made.Consumer.Group.Session.Timeout = 6 * time.Second
	return made
}

var servers = []string{os.Getenv("ODRADEK_BOOTSTRAP")}

func say(err error) {
	if err != nil {
		fmt.Println(err)
	}
}

func send(producer sarama.SyncProducer) {
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder("a")})
	say(err)
}

func produces() {
	producer, err := sarama.NewSyncProducer(servers, config())
	if err != nil {
		say(err)
		return
	}
	for range 20 {
		send(producer)
	}
	say(producer.Close())
}

func commits() {
	settings := config()
	settings.Producer.Transaction.ID = "t"
	producer, err := sarama.NewSyncProducer(servers, settings)
	if err != nil {
		say(err)
		return
	}
	for number := range 4 {
		say(producer.BeginTxn())
		send(producer)
		if number == 1 {
			say(producer.AbortTxn())
		} else {
			say(producer.CommitTxn())
		}
	}
	say(producer.Close())
}

type reader struct{}

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func consumes() {
	until, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	group, err := sarama.NewConsumerGroup(servers, "g", config())
	if err != nil {
		say(err)
		return
	}
	for until.Err() == nil {
		say(group.Consume(until, []string{"orders"}, reader{}))
	}
	say(group.Close())
}

func main() {
	produces()
	commits()
	consumes()
}
