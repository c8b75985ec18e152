"""Seeds: what a broker creates before it accepts its first client, as far as docs/seed.md lists it.

Nothing of this package is imported unless a seed is given.

plan         topics, records, groups, users and ACLs to create, as values
tree         the text of a seed, in YAML or JSON, as a tree whose nodes know their line and their field
document     from that tree to a plan
demo         the seed of `odradek seed --demo`
short_forms  `--topic` and `KAFKA_CREATE_TOPICS`
"""
