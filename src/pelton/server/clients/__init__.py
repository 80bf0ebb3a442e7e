"""The clients of the server: greeting, CONNECT, pings, and records of closed connections."""
