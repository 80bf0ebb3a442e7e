"""The PROXY protocol: the header in which a proxy names the address of a client. Pure.

v1:  PROXY TCP4 192.0.2.1 198.51.100.7 51234 4222 CR LF          (TCP6; UNKNOWN: no address)

v2:   0                12             13               14        16
     +----------------+--------------+----------------+---------+------------------------+
     | signature      | version 2,   | family 1: IPv4 | length  | source, destination,   |
     | (12 bytes)     | command      | 2: IPv6; TCP   | (big)   | ports, extensions      |
     +----------------+--------------+----------------+---------+------------------------+
"""

import ipaddress
from typing import NamedTuple

V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V1_PREFIX = b"PROXY "
DETECT_BYTES = 6
V1_MAX_BYTES = 107
V2_HEAD_BYTES = 16

_LOCAL, _PROXY = 0, 1
_UNSPECIFIED, _IPV4, _IPV6 = 0, 1, 2
_STREAM = 1
_ADDRESS_BYTES = {_IPV4: 4, _IPV6: 16}


class Header(NamedTuple):
    """A complete header: its size in bytes, and the client's address ("", 0: the proxy itself)."""

    length: int
    host: str
    port: int


def parse_header(data: bytes) -> Header | None:
    """Parse the header at the beginning of a connection's bytes; None when more bytes are needed.

    Without a header the result is a Header of length 0. ValueError for an invalid header.
    """
    seen = data[:DETECT_BYTES]
    if len(seen) < DETECT_BYTES:
        return None
    if seen == V1_PREFIX:
        return _version_1(data)
    if seen == V2_SIGNATURE[:DETECT_BYTES]:
        return _version_2(data)
    return Header(0, "", 0)


def _version_1(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, V1_MAX_BYTES)
    if end < 0:
        if len(data) >= V1_MAX_BYTES:
            raise ValueError("the line is too long")
        return None
    words = data[len(V1_PREFIX) : end].decode("latin-1").split()
    if words and words[0] == "UNKNOWN":
        return Header(end + 2, "", 0)
    if len(words) != 5 or words[0] not in ("TCP4", "TCP6"):
        raise ValueError("the line is not PROXY TCP4|TCP6 source destination port port")
    source, destination = words[1:3]
    for address in (source, destination):
        ipaddress.ip_address(address)
        if (":" in address) != (words[0] == "TCP6"):
            raise ValueError(f"{words[0]} with the address {address}")
    for port in words[3:]:
        if not (port.isdecimal() and int(port) <= 65535):
            raise ValueError(f"{port} is not a port")
    return Header(end + 2, _plain(source), int(words[3]))


def _version_2(data: bytes) -> Header | None:
    if not data.startswith(V2_SIGNATURE[: len(data)]):
        raise ValueError("the signature is not valid")
    if len(data) < V2_HEAD_BYTES:
        return None
    version, command = data[12] >> 4, data[12] & 15
    family, protocol = data[13] >> 4, data[13] & 15
    size = int.from_bytes(data[14:16], "big")
    length = V2_HEAD_BYTES + size
    if version != 2:
        raise ValueError(f"version {version} is not supported")
    if command not in (_LOCAL, _PROXY):
        raise ValueError(f"command {command} is unknown")
    if command == _PROXY and protocol != _STREAM:
        raise ValueError("only stream connections are supported")
    if command == _PROXY and family not in (_UNSPECIFIED, _IPV4, _IPV6):
        raise ValueError(f"address family {family} is unknown")
    proxied = command == _PROXY and family != _UNSPECIFIED
    if proxied and size < 2 * _ADDRESS_BYTES[family] + 4:
        raise ValueError("the addresses are too short")
    if len(data) < length:
        return None
    if not proxied:
        return Header(length, "", 0)
    width = _ADDRESS_BYTES[family]
    at = V2_HEAD_BYTES
    host = str(ipaddress.ip_address(data[at : at + width]))
    port = int.from_bytes(data[at + 2 * width : at + 2 * width + 2], "big")
    return Header(length, _plain(host), port)


def _plain(host: str) -> str:
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
