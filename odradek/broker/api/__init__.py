"""The parts that every API shares: the request context, authorization, dispatch and error replies."""
