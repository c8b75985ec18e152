"""Records over HTTP: `POST` and `GET /api/topics/{topic}/records` (docs/http-records.md). Imported with the page, since
both use the same JSON form of a record and the same code to write records.

reading   reads records from a position on, and waits for further records
calls     the table of the calls, and their OpenAPI document
routes    the HTTP handlers
"""
