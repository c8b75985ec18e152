"""SASL authentication of client connections.

`tables` contains the states of a connection. `authentication` uses them to handle frames. The mechanisms (`plain`,
`scram`, `oauthbearer`) check tokens. Connections call `requests`.
"""
