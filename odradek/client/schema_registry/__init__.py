"""A client for schema registries with Confluent's HTTP interface."""
