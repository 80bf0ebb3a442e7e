"""Checks of a deployment over an audit archive, without any connection.

Codes, names and thresholds are those of ``nats audit``. A check looks at the pages of the archive and notes what it
finds; ``critical`` makes it fail, ``warning`` is a warning. A check that has nothing to look at is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.cli.audit.archive import STREAM_KIND, UNCLUSTERED, Reader
from pelton.cli.audit.check import Check, Findings, Threshold, Thresholds
from pelton.cli.output import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLANKS = frozenset(" \t\r\n")


def _pages(archive: Reader, kind: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(cluster, server, data) of each page of servers."""
    for tags, content in archive.pages(artifact_type=kind):
        yield tags["cluster"], tags["server"], content.get("data") or {}


def _streams(archive: Reader) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """(account, stream, server, detail) of each copy of a stream."""
    for tags, content in archive.pages(artifact_type=STREAM_KIND):
        yield tags["account"], tags["stream"], tags["server"], content


# -- accounts


def _account_limits(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for tags, content in archive.pages(artifact_type="account_info"):
        data = content.get("data") or content
        found.seen += 1
        limits = (((data.get("decoded_jwt") or {}).get("nats")) or {}).get("limits") or {}
        for used, limit, threshold, text in (
            ("client_connections", "conn", "connections", "client connections"),
            ("leafnode_connections", "leaf", "connections", "leaf connections"),
            ("subscriptions", "subs", "subscriptions", "subscriptions"),
        ):
            value, most = int(data.get(used) or 0), int(limits.get(limit) or 0)
            if most <= 0:
                continue
            where = f"account {data.get('account_name', tags['account'])} on {tags['server']}"
            share = f"{value * 100 / most:.1f} % of its limit of {text} ({value}/{most})"
            if value > most:
                found.critical.append(f"{where} uses {share}")
            elif value > most * thresholds[threshold] / 100:
                found.warning.append(f"{where} uses {share}")


# -- clusters


def _memory_outliers(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    clusters: dict[str, dict[str, int]] = {}
    for cluster, server, data in _pages(archive, "variables"):
        if cluster != UNCLUSTERED:
            clusters.setdefault(cluster, {})[server] = int(data.get("mem") or 0)
    for cluster, servers in clusters.items():
        found.seen += 1
        mean = sum(servers.values()) / len(servers)
        for server, used in servers.items():
            if used > mean * thresholds["memory"]:
                text = f"{server} uses {size(used)}, the average of cluster {cluster} is {size(int(mean))}"
                found.warning.append(text)


def _uniform_gateways(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    configured: dict[tuple[str, str], dict[str, list[str]]] = {}
    for cluster, server, data in _pages(archive, "gateways"):
        if cluster == UNCLUSTERED:
            continue
        found.seen += 1
        outbound = data.get("outbound_gateways") or {}
        inbound = data.get("inbound_gateways") or {}
        for kind, names in (
            ("outbound", [name for name, each in outbound.items() if each.get("configured")]),
            (
                "inbound",
                [n for n, many in inbound.items() if any(e.get("configured") for e in many)],
            ),
        ):
            configured.setdefault((cluster, kind), {})[server] = sorted(names)
    for (cluster, kind), servers in configured.items():
        first, *others = sorted(servers)
        for other in others:
            if servers[other] != servers[first]:
                text = f"cluster {cluster}: {kind} gateways of {other} {servers[other]} are not those of"
                found.critical.append(f"{text} {first} {servers[first]}")


def _ha_assets(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for cluster, server, data in _pages(archive, "jetstream_info"):
        if cluster == UNCLUSTERED:
            continue
        found.seen += 1
        count = int(data.get("ha_assets") or 0)
        if count > thresholds["assets"]:
            found.warning.append(f"{server} has {count} streams and consumers with copies")


def _cluster_names(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for cluster in archive.clusters():
        found.seen += 1
        if _BLANKS & set(cluster):
            found.critical.append(f'cluster "{cluster}"')


# -- JetStream


def _lagging_replicas(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    streams: dict[tuple[str, str], dict[str, int]] = {}
    for account, stream, server, detail in _streams(archive):
        last = int((detail.get("state") or {}).get("last_seq") or 0)
        streams.setdefault((account, stream), {})[server] = last
    for (account, stream), servers in streams.items():
        found.seen += 1
        ahead = max(servers, key=lambda name: servers[name])
        least = servers[ahead] * (1 - thresholds["last_seq"] / 100)
        for server, last in servers.items():
            if last < least:
                text = f"{account}/{stream}: {server} is at sequence {last}, {ahead} at {servers[ahead]}"
                found.critical.append(text)


def _cardinality(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    most: dict[tuple[str, str], int] = {}
    for account, stream, _, detail in _streams(archive):
        count = int((detail.get("state") or {}).get("num_subjects") or 0)
        most[account, stream] = max(count, most.get((account, stream), 0))
    for (account, stream), count in most.items():
        found.seen += 1
        if count > thresholds["subjects"]:
            found.warning.append(f"{account}/{stream} has {count} subjects")


def _stream_limits(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for account, stream, server, detail in _streams(archive):
        found.seen += 1
        state, config = detail.get("state") or {}, detail.get("config") or {}
        for used, limit, threshold in (
            ("messages", "max_msgs", "messages"),
            ("bytes", "max_bytes", "bytes"),
            ("consumer_count", "max_consumers", "consumers"),
        ):
            value, most = int(state.get(used) or 0), int(config.get(limit) or 0)
            if most > 0 and value > most * thresholds[threshold] / 100:
                share = f"{value * 100 / most:.1f} % of its limit of {threshold} ({value}/{most})"
                found.warning.append(f"{account}/{stream} on {server} uses {share}")


# -- the servers of a JetStream cluster


def _meta(archive: Reader) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for cluster, server, data in _pages(archive, "jetstream_info"):
        if not data.get("disabled") and data.get("meta_cluster"):
            yield cluster, server, data["meta_cluster"]


def _offline_peers(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for cluster, server, meta in _meta(archive):
        found.seen += 1
        for peer in meta.get("replicas") or ():
            if peer.get("offline"):
                found.critical.append(
                    f"cluster {cluster}: {server} says that {peer.get('name')} is offline"
                )


def _meta_leader(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    leaders: dict[str, dict[str, list[str]]] = {}
    for cluster, server, meta in _meta(archive):
        found.seen += 1
        name = str(meta.get("leader") or "")
        leaders.setdefault(cluster, {}).setdefault(name, []).append(server)
    for cluster, views in leaders.items():
        if "" in views:
            found.critical.append(f"cluster {cluster}: {', '.join(views[''])} know no leader")
        elif len(views) > 1:
            text = "; ".join(
                f"{leader} for {', '.join(who)}" for leader, who in sorted(views.items())
            )
            found.critical.append(f"cluster {cluster} has several leaders: {text}")


# -- servers


def _health(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for _, server, data in _pages(archive, "health"):
        found.seen += 1
        if data.get("status") not in ("ok", "", None):
            more = f": {data['error']}" if data.get("error") else ""
            found.warning.append(f"{server}: {data.get('status_code')} {data['status']}{more}")


def _versions(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    versions: dict[str, list[str]] = {}
    for _, server, data in _pages(archive, "variables"):
        found.seen += 1
        versions.setdefault(str(data.get("version")), []).append(server)
    if len(versions) > 1:
        found.critical += [
            f"{version}: {', '.join(who)}" for version, who in sorted(versions.items())
        ]


def _cpu(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for _, server, data in _pages(archive, "variables"):
        cores = data.get("cores") or 0
        if not cores:
            continue
        found.seen += 1
        used = float(data.get("cpu") or 0) / cores
        if used > thresholds["cpu"]:
            found.critical.append(f"{server} uses {used:.1f} % of its processors")


def _slow_consumers(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for _, server, data in _pages(archive, "variables"):
        found.seen += 1
        if count := int(data.get("slow_consumers") or 0):
            found.warning.append(f"{server}: {count} clients read too slowly")


def _resources(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for _, server, data in _pages(archive, "jetstream_info"):
        config = data.get("config") or {}
        found.seen += 1
        for used, limit, threshold, text in (
            ("memory", "max_memory", "memory", "memory"),
            ("storage", "max_storage", "store", "disk"),
        ):
            value, most = int(data.get(used) or 0), int(config.get(limit) or 0)
            if most > 0 and value > most * thresholds[threshold] / 100:
                found.warning.append(f"{server} uses {size(value)} of {size(most)} {text}")


def _domains(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for _, server, data in _pages(archive, "jetstream_info"):
        found.seen += 1
        domain = str((data.get("config") or {}).get("domain") or "")
        if _BLANKS & set(domain):
            found.warning.append(f'{server}: domain "{domain}"')


def _authentication(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for _, server, data in _pages(archive, "variables"):
        found.seen += 1
        if not data.get("auth_required"):
            found.warning.append(f"{server} lets everybody in")


def _certificates(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    from pelton.api.times import parse_time

    day = 86_400 * 10**9
    for _, server, data in _pages(archive, "variables"):
        parts = {"": data, **{name: data.get(name) or {} for name in _LISTENERS}}
        for name, part in parts.items():
            text = part.get("tls_cert_not_after")
            if not text or text.startswith("0001-"):
                continue
            found.seen += 1
            left = (parse_time(text) - parse_time(str(data["now"]))) / day
            said = f"the {name or 'server'} certificate of {server} expires at {text}"
            if left <= thresholds["tls_expire_critical"]:
                found.critical.append(said)
            elif left <= thresholds["tls_expire_warning"]:
                found.warning.append(said)


_LISTENERS = ("cluster", "gateway", "leaf", "mqtt", "websocket")


# -- leaf nodes


def _leaf_names(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    for _, server, data in _pages(archive, "leafs"):
        found.seen += 1
        for each in data.get("leafs") or ():
            if _BLANKS & set(str(each.get("name") or "")):
                found.warning.append(f'{server}: leaf node "{each["name"]}"')


CHECKS = (
    Check(
        "ACCOUNTS_001",
        "accounts",
        "Account limits",
        "Accounts are below their limits",
        _account_limits,
        (
            Threshold("connections", "Share of the limit of connections", 90, "%"),
            Threshold("subscriptions", "Share of the limit of subscriptions", 90, "%"),
        ),
    ),
    Check(
        "CLUSTER_001",
        "cluster",
        "Memory of clusters",
        "The servers of a cluster use about the same memory",
        _memory_outliers,
        (Threshold("memory", "How many times the average a server may use", 1.5),),
    ),
    Check(
        "CLUSTER_002",
        "cluster",
        "Gateways of clusters",
        "The servers of a cluster have the same gateways",
        _uniform_gateways,
    ),
    Check(
        "CLUSTER_003",
        "cluster",
        "Streams with copies",
        "Servers have not too many streams and consumers with copies",
        _ha_assets,
        (Threshold("assets", "Streams and consumers with copies of a server", 1000),),
    ),
    Check(
        "CLUSTER_004",
        "cluster",
        "Blanks in cluster names",
        "Cluster names have no blanks",
        _cluster_names,
    ),
    Check(
        "JETSTREAM_001",
        "jetstream",
        "Lagging copies",
        "All copies of a stream keep up",
        _lagging_replicas,
        (Threshold("last_seq", "How far a copy may be behind", 10, "%"),),
    ),
    Check(
        "JETSTREAM_002",
        "jetstream",
        "Many subjects",
        "Streams have not too many subjects",
        _cardinality,
        (Threshold("subjects", "Subjects of a stream", 1_000_000),),
    ),
    Check(
        "JETSTREAM_003",
        "jetstream",
        "Stream limits",
        "Streams are below their limits",
        _stream_limits,
        (
            Threshold("messages", "Share of the limit of messages", 90, "%"),
            Threshold("bytes", "Share of the limit of bytes", 90, "%"),
            Threshold("consumers", "Share of the limit of consumers", 90, "%"),
        ),
    ),
    Check(
        "LEAF_001",
        "leafnodes",
        "Blanks in leaf node names",
        "Leaf node names have no blanks",
        _leaf_names,
    ),
    Check(
        "META_001",
        "meta",
        "Offline servers",
        "All servers of the cluster are online",
        _offline_peers,
    ),
    Check(
        "META_002", "meta", "Leader of the cluster", "All servers agree on the leader", _meta_leader
    ),
    Check("SERVER_001", "server", "Health", "All servers are healthy", _health),
    Check("SERVER_002", "server", "Versions", "All servers run the same version", _versions),
    Check(
        "SERVER_003",
        "server",
        "Processors",
        "Servers have processor time left",
        _cpu,
        (Threshold("cpu", "Processor time, over all cores", 90, "%"),),
    ),
    Check("SERVER_004", "server", "Slow consumers", "Clients read fast enough", _slow_consumers),
    Check(
        "SERVER_005",
        "server",
        "Limits of JetStream",
        "Servers are below their limits of memory and disk",
        _resources,
        (
            Threshold("memory", "Share of the limit of memory", 90, "%"),
            Threshold("store", "Share of the limit of disk", 90, "%"),
        ),
    ),
    Check(
        "SERVER_006", "server", "Blanks in domains", "JetStream domains have no blanks", _domains
    ),
    Check(
        "SERVER_007", "server", "Authentication", "Servers let nobody in unasked", _authentication
    ),
    Check(
        "SERVER_008",
        "server",
        "Certificates",
        "TLS certificates do not expire soon",
        _certificates,
        (
            Threshold("tls_expire_warning", "Warn this long before", 30, "days"),
            Threshold("tls_expire_critical", "Fail this long before", 7, "days"),
        ),
    ),
)
