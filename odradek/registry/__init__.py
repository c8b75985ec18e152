"""The schema registry: Confluent's HTTP interface for schemas, to the extent listed in docs/schema-registry.md.

A broker imports no module of this package unless `odradek.schema.registry.enable` is set. Clients of a registry import
the modules that they need.

errors           the interface's errors and their codes
schemas          a schema as clients send it, and the protocol that each schema type implements
avro_documents   Avro schemas as JSON documents, without Avro's library
avro_schemas     Avro: canonical text and compatibility
json_schemas     JSON Schema: canonical text and compatibility
protobuf_schemas Protobuf: text, descriptors and compatibility
values           keys and values of records in Confluent's wire format, as JSON
avro_values      values of Avro schemas
json_values      values of JSON Schemas
protobuf_values  values of Protobuf schemas
levels           the compatibility levels: the earlier versions that a new schema is compared with, and the direction
records          the keys and values of the topic `_schemas`
state            subjects, versions, ids, levels and modes; changes only when records are replayed
facts            parses and compares schemas for decisions, either immediately or in threads
core             decides requests; a decision returns the response and the records to write
"""
