"""Records over HTTP: `POST` and `GET /api/topics/{topic}/records` (docs/http-records.md). Imported with the page, whose
grammar of a record and way to write records it shares.

reading   reads records from a position on, and waits for more
calls     the table of the calls, and their OpenAPI document
routes    the HTTP handlers
"""
