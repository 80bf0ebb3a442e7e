"""A stream: the publish path, the release of PubAcks, retention, direct get, and the copying of sources and mirrors."""
