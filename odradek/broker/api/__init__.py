"""What every API shares: the request context, authorization, dispatch and error replies."""
