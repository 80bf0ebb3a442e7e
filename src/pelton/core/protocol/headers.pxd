"""Header blocks for Python callers; compiled callers look into a block with core/protocol/publish_headers."""
