"""The command-line tools of JetStream's previews: `jsm`, and `nats`, `nats-pub`, `nats-sub`,
`nats-req`, `nats-bench` as of 2019 and 2020.

They have the arguments and print the lines of that time, so that pages of it can be followed.
`asking` sends requests of the dialects (api/dialects); `shims` puts the tools into a folder.
"""
