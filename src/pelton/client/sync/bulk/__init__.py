"""Many messages at once for blocking code: columns out of a stream and rows into it."""
