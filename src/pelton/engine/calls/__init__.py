"""The calls of the JetStream API: from the request to the response."""
