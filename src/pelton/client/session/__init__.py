"""What all clients share above one connection: reconnects, requests, subscriptions, the status."""
