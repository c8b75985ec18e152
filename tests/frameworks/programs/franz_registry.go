// A program with franz-go's package sr. test_registry_clients.py describes what it must do.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protowire"
)

type money struct {
	Currency string `json:"currency" avro:"currency"`
	Units    int64  `json:"units" avro:"units"`
}

type order struct {
	ID    int64  `json:"id" avro:"id"`
	Price money  `json:"price" avro:"price"`
	Note  string `json:"note" avro:"note"`
}

type texts struct{ Money, First, Second, Refused, Name string }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// toProtobuf encodes an order like the code that protoc-gen-go would generate for the second version of the schema.
func toProtobuf(v any) ([]byte, error) {
	given := v.(*order)
	var price, found []byte
	price = protowire.AppendString(protowire.AppendTag(price, 1, protowire.BytesType), given.Price.Currency)
	price = protowire.AppendVarint(protowire.AppendTag(price, 2, protowire.VarintType), uint64(given.Price.Units))
	found = protowire.AppendVarint(protowire.AppendTag(found, 1, protowire.VarintType), uint64(given.ID))
	found = protowire.AppendBytes(protowire.AppendTag(found, 2, protowire.BytesType), price)
	return protowire.AppendString(protowire.AppendTag(found, 3, protowire.BytesType), given.Note), nil
}

func numbersAndBytes(b []byte) (map[protowire.Number]uint64, map[protowire.Number][]byte) {
	numbers, contents := map[protowire.Number]uint64{}, map[protowire.Number][]byte{}
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		b = b[n:]
		if kind == protowire.VarintType {
			numbers[field], n = protowire.ConsumeVarint(b)
		} else {
			contents[field], n = protowire.ConsumeBytes(b)
		}
		b = b[n:]
	}
	return numbers, contents
}

func fromProtobuf(b []byte, v any) error {
	numbers, contents := numbersAndBytes(b)
	units, price := numbersAndBytes(contents[2])
	*v.(*order) = order{int64(numbers[1]), money{string(price[1]), int64(units[2])}, string(contents[3])}
	return nil
}

func codec(kind sr.SchemaType, given texts) []sr.EncodingOpt {
	switch kind {
	case sr.TypeAvro:
		must(avro.Parse(given.Money))
		schema := must(avro.Parse(given.Second))
		return []sr.EncodingOpt{
			sr.EncodeFn(func(v any) ([]byte, error) { return avro.Marshal(schema, v) }),
			sr.DecodeFn(func(b []byte, v any) error { return avro.Unmarshal(schema, b, v) }),
		}
	case sr.TypeJSON:
		return []sr.EncodingOpt{sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal)}
	}
	return []sr.EncodingOpt{sr.EncodeFn(toProtobuf), sr.DecodeFn(fromProtobuf), sr.Index(0)}
}

func main() {
	bootstrap, url, prefix := os.Args[1], os.Args[2], os.Args[3]
	var all map[string]texts
	if err := json.Unmarshal([]byte(os.Args[4]), &all); err != nil {
		panic(err)
	}
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(url)))
	for _, kind := range []sr.SchemaType{sr.TypeAvro, sr.TypeJSON, sr.TypeProtobuf} {
		given := all[kind.String()]
		topic := prefix + "-" + strings.ToLower(kind.String())
		must(client.CreateSchema(ctx, topic+"-money", sr.Schema{Schema: given.Money, Type: kind}))
		uses := []sr.SchemaReference{{Name: given.Name, Subject: topic + "-money", Version: 1}}
		schema := func(text string) sr.Schema { return sr.Schema{Schema: text, Type: kind, References: uses} }
		first := must(client.CreateSchema(ctx, topic+"-value", schema(given.First)))
		second := must(client.CreateSchema(ctx, topic+"-value", schema(given.Second)))
		refused := 200
		var answer *sr.ResponseError
		if _, err := client.CreateSchema(ctx, topic+"-value", schema(given.Refused)); errors.As(err, &answer) {
			refused = answer.StatusCode
		}
		if found := must(client.LookupSchema(ctx, topic+"-value", schema(given.Second))); found.ID != second.ID {
			panic("another id")
		}
		if !must(client.CheckCompatibility(ctx, topic+"-value", -1, schema(given.Second))).Is {
			panic("not compatible with itself")
		}
		serde := sr.NewSerde()
		serde.Register(second.ID, &order{}, codec(kind, given)...)
		value := serde.MustEncode(&order{7, money{"EUR", 12}, "gift"})

		kafka := must(kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.AllowAutoTopicCreation()))
		if err := kafka.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
			panic(err)
		}
		var records []*kgo.Record
		for len(records) == 0 {
			records = kafka.PollFetches(ctx).Records()
		}
		kafka.Close()
		if !bytes.Equal(records[0].Value, value) {
			panic("other bytes")
		}
		read := &order{}
		if err := serde.Decode(records[0].Value, read); err != nil {
			panic(err)
		}
		shown := map[string]any{"type": kind.String(), "ids": []int{first.ID, second.ID}, "refused": refused, "read": read}
		fmt.Println(string(must(json.Marshal(shown))))
	}
}
