"""Regular expressions as Kafka's requests mean them."""
