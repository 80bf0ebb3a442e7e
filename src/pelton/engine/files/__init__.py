"""The files of an account's streams and consumers, and how their changes become durable."""
