"""The schema registry inside the broker: its HTTP port, its topic and its rights. `odradek.registry` decides.

serving   starts and stops the registry of a broker
topic     reads and writes the topic `_schemas`
service   runs requests: decisions on the loop, one after the other where they write; parsing in threads
access    who may do what: logins with the broker's users, and ACLs of the topic that a subject names
routes    the HTTP interface
values    encodes and decodes keys and values for the page and for records over HTTP
"""
