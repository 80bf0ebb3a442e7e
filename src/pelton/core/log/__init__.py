"""One stream's messages in files: segments, the index, recovery, and what a damaged disk leaves."""
