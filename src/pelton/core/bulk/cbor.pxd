"""CBOR values of many rows as JSON text; see cbor.pyi."""
