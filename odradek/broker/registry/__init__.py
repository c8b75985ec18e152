"""The schema registry inside the broker: its HTTP port, its topic and its access control. All decisions are made by
`odradek.registry`.

serving   starts and stops a broker's registry
topic     reads and writes the topic `_schemas`
service   runs requests; decides on the loop, one request at a time if it writes, and parses schemas in threads
access    controls access with the ACLs of each subject's topic
routes    the HTTP interface
values    encodes and decodes keys and values for the page and for records sent over HTTP
"""
