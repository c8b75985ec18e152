"""Describes all calls of the control interface, which are below /control/v1, in one place.

call      a call's description: method, path, fields, response
table     all calls, one per row, for the HTTP routes, the OpenAPI document, `odradek control` and `odradek.testing`
rules     the JSON schema of a fault rule, for requests and for responses
answers   the JSON schemas of the other responses
openapi   creates the OpenAPI document from the table
"""
