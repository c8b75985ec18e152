"""Regular expressions with the same syntax and semantics as Kafka's."""
