// Applications based on transactions of Sarama, one function each. The last line that is printed is the application's
// result.
package main

import (
	"os"

	"github.com/IBM/sarama"
)

func producer() (sarama.SyncProducer, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_5_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = "t"
	return sarama.NewSyncProducer([]string{os.Getenv("ODRADEK_BOOTSTRAP")}, config)
}

func commitOffsets() (string, error) {
	producer, err := producer()
	if err != nil {
		return "", err
	}
	if err = producer.BeginTxn(); err != nil {
		return "", err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{"orders": {{Partition: 0, Offset: 1}}}
	if err = producer.AddOffsetsToTxn(offsets, "g"); err != nil {
		return "", err
	}
	return "committed", producer.CommitTxn()
}

func sendOne() (string, error) {
	producer, err := producer()
	if err != nil {
		return "", err
	}
	if err = producer.BeginTxn(); err != nil {
		return "", err
	}
	if _, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "orders"}); err != nil {
		return "", err
	}
	return "committed", producer.CommitTxn()
}

var applications = map[string]func() (string, error){"commitOffsets": commitOffsets, "sendOne": sendOne}
