"""One account: its entries of streams and consumers, its limits, its advisories."""
