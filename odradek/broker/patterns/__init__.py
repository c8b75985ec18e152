"""Regular expressions with the syntax and semantics of Kafka's regular expressions."""
