"""The level of the JetStream API that Penstock offers (ADR-44); level 4 is nats-server 2.14."""

API_LEVEL = 4
