"""The server's clients as people: greeting, CONNECT, pings, and what is remembered of them."""
