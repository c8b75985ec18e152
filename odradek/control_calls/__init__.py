"""The calls of the control interface below /control/v1, each described once.

call      what a row of the table says of a call: method, path, fields, answer
table     the rows. The routes, the OpenAPI document, `odradek control` and `odradek.testing` follow from them
rules     the JSON schema of a rule of faults, as it is sent and as it is answered
answers   the JSON schemas of the other answers
openapi   makes the OpenAPI document of the rows
"""
