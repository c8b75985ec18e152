"""Reads and writes records over HTTP: `POST` and `GET /api/topics/{topic}/records` (docs/http-records.md). This package
is imported together with the page, because it uses the page's JSON form of a record and the page's code to write
records.

reading   reads records from a position, and waits for more
calls     the table of calls, and their OpenAPI document
routes    the HTTP handlers
"""
