package main

import (
	"os"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	config := sarama.NewConfig()
	config.ClientID = "judged"
	config.Version = sarama.V2_1_0_0
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	consumer, err := sarama.NewConsumer([]string{os.Getenv("ODRADEK_BOOTSTRAP")}, config)
	if err != nil {
		panic(err)
	}
	orders, err := consumer.ConsumePartition("orders", 0, sarama.OffsetOldest)
	if err != nil {
		panic(err)
	}
	time.Sleep(2 * time.Second)
	orders.Close()
	consumer.Close()
}
