"""Describes each call of the control interface, below /control/v1, in one place.

call      the description of a call: method, path, fields, response
table     all calls, one per row, for the HTTP routes, the OpenAPI document, `odradek control` and `odradek.testing`
rules     the JSON schema of a fault rule, in requests and in responses
answers   the JSON schemas of the other responses
openapi   creates the OpenAPI document from the table
"""
