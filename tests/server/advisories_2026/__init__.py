"""The public security advisories of 2026 for nats-server (`secnote-2026-01` and later), each as an attack
on both servers. A test names its advisory: the number where it is public, otherwise the CVE or the
commit that fixed nats-server.
"""
