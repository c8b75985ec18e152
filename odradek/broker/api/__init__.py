"""The code that all APIs share: the request context, authorization, dispatch and error replies."""
