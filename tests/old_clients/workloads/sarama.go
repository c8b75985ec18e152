// Applications on Sarama, one function each. The last line that one prints is all that it sees.
package main

import (
	"fmt"
	"os"

	"github.com/IBM/sarama"
)

var at = []string{os.Getenv("ODRADEK_BOOTSTRAP")}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_5_0_0
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

func main() {
	functions := map[string]func() (string, error){"send": send}
	seen, err := functions[os.Args[1]]()
	if err != nil {
		seen = "raised " + err.Error()
	}
	fmt.Println(seen)
}
