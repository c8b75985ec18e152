"""The HTTP port for operators, by default on the loopback interface: /metrics, /healthz, /readyz and the page.

listener     the socket, which is open from the start; all other modules are imported at the first connection
pages        the HTTP server, which uses aiohttp
connections  accepts connections to the HTTP server, and limits their number
measures     collects the metrics as plain numbers, in the event loop's thread
exposition   formats the metrics as text for Prometheus
access       decides which requests are answered
guard        checks the Host and Origin headers
json_answer  builds JSON responses
logins       logs HTTP clients in as users of the broker
page/        the page, which shows the broker's state in a browser
records/     the calls that programs use to read and write records as JSON
"""
