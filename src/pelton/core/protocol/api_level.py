"""The level of the JetStream API that Pelton offers (ADR-44); level 5 is nats-server 2.15."""

API_LEVEL = 5
