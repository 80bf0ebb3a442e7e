"""The control plane: accounts, streams, consumers and the JetStream API, over the compiled core.

::

    engine.py                          all accounts of a server: start, timers, shutdown
    calls/                             the JetStream API: from request to response
    backups/                           snapshots and restores
    lifecycles/                        streams and consumers: create, update, recover, delete
    account/                           one account: its entries, limits, advisories
    config/                            defaults, validation, what an update may change
    rules/   sources/                  what a stream does besides storing; mirrors and sources
    files/                             folders and configuration files
    base/                              settings, subjects, transforms, deadlines

A room imports only rooms below it.

Plain Python, synchronous, run to completion. Time comes from the reactor, disk from a `Disk`,
randomness from a seeded source. A server has one `engine.Engine`; `base.settings.Settings` holds the
identity and the policies of the server. `config` needs no server: plans of the command line use it,
on any system.
"""
