"""The tables of the command tree: names, one line of help for each, modules.

The nouns and verbs are those of the ``nats`` command; ``other_names`` has its other names for them.
"""

# name -> (one line of help, module, attribute)
Row = tuple[str, str, str]

TOP: dict[str, Row] = {
    "serve": ("Start a server here.", "programs", "serve"),
    "run": ("Start server, log shipper and Spark tables in one command.", "programs", "run"),
    "bundle": ("Start a server for a plgd hub.", "plgd.bundle", "bundle"),
    "plgd": (
        "Events of a plgd hub: fleet, publish, run, reconcile, report ...",
        "tree",
        "plgd",
    ),
    "server": (
        "Ask running servers: ls, info, report, request, check ...",
        "tree",
        "servers",
    ),
    "pub": ("Publish messages.", "messages.publishing", "pub"),
    "sub": ("Print the messages of subjects, or of a stream.", "messages.subscribing", "sub"),
    "req": ("Send a request, and print the answer.", "messages.requesting", "req"),
    "reply": (
        "Answer requests: with a text, an echo, a command's output.",
        "messages.requesting",
        "reply",
    ),
    "stream": (
        "Streams: ls, add, edit, info, report, view, get, rm, purge, backup ...",
        "tree",
        "stream",
    ),
    "consumer": (
        "Consumers: ls, add, edit, info, report, next, pause, reset ...",
        "tree",
        "consumer",
    ),
    "kv": ("Key-value buckets: add, put, get, del, watch, history, ls.", "tree", "kv"),
    "object": ("Object stores: add, put, get, del, ls, watch.", "tree", "object_"),
    "service": ("Services: ls, info, stats, ping, request, serve.", "tree", "service"),
    "counter": ("Counters in streams: get, increment, view, ls.", "tree", "counter"),
    "cheat": ("Print command lines to copy, by topic.", "cheats", "cheat"),
    "completion": ("Print the script for bash, zsh or fish.", "completion", "completion"),
    "jsm": ("The tool of 2019 for message sets and observables.", "programs", "jsm"),
    "shims": ("Write the tools of 2019 and 2020 into a folder.", "early.shims", "shims"),
    "bench": ("Measure speed: pub, sub, service, js, kv.", "tree", "bench"),
    "events": ("Print advisories, metrics, connects of clients.", "live.events", "events"),
    "top": ("Follow the connections of a server.", "live.top", "top"),
    "trace": ("Show who gets a message, over all servers.", "live.trace", "trace"),
    "traffic": ("Count messages each second, by kind.", "live.traffic", "traffic"),
    "latency": ("Measure how long messages take.", "live.latency", "latency"),
    "rtt": ("Measure how long the server takes to answer.", "connections", "rtt"),
    "schema": ("JSON schemas: search, info, validate, request.", "tree", "schema"),
    "errors": ("Errors of JetStream: ls, lookup, validate, edit.", "tree", "errors"),
    "context": ("URLs and credentials under names: add, select, ls, info.", "tree", "context"),
    "account": ("The account: info, report, backup, restore, tls.", "tree", "account"),
    "auth": ("Operators, accounts, users and their keys, as JWTs.", "tree", "auth"),
    "audit": ("Check a whole deployment: gather, analyze, checks.", "tree", "audit"),
    "pipeline": ("A pipeline in a file: check, test, run, watch, replay.", "tree", "pipeline"),
    "spark": ("Spark: watch streaming queries, package for a cluster.", "tree", "spark"),
    "explain": ("Say why a consumer does not deliver a message.", "consumers.explain", "explain"),
    "replay": (
        "Publish messages of a stream again, in their rhythm.",
        "streams.replaying",
        "replay",
    ),
    "diff-stream": ("Compare two streams, message by message.", "streams.comparing", "diff_stream"),
    "sql": ("Answer questions in SQL over streams, buckets, objects.", "sql.query", "sql"),
    "store": (
        "A store folder, without a server: ls, check, verify, repair, dump, backup, restore.",
        "store.tree",
        "store",
    ),
    "tables": ("Maintain the tables that Spark writes: maintain, expire.", "tree", "tables"),
    "apply": (
        "Make streams, consumers, buckets as files declare.",
        "configuration.applying",
        "apply",
    ),
    "plan": ("Show what apply would do.", "configuration.applying", "plan"),
    "diff": ("The same as plan.", "configuration.applying", "plan"),
    "drift": ("Watch whether a server is as files declare.", "configuration.reconciling", "drift"),
    "export": (
        "Print streams and consumers as files for apply.",
        "configuration.applying",
        "export",
    ),
    "validate": ("Check files for apply without a server.", "configuration.applying", "validate"),
}
# the parts of the help text of pelton itself
SECTIONS: dict[str, str] = {
    "Messages": "pub sub req reply service bench",
    "Streams and consumers": "stream consumer counter explain replay diff-stream sql",
    "Buckets": "kv object",
    "Configuration as code": "apply plan diff export drift validate",
    "Servers and accounts": "serve server account context auth audit store",
    "What happens now": "events top trace traffic latency rtt",
    "plgd hubs and Spark": "bundle plgd run pipeline spark tables",
    "Help and other tools": "cheat completion schema errors jsm shims",
}
STREAM: dict[str, Row] = {
    "ls": ("List streams.", "streams.basics", "ls"),
    "add": ("Create a stream.", "streams.changing", "add"),
    "edit": ("Change the configuration of streams.", "streams.changing", "edit"),
    "copy": ("Create a stream with the configuration of another.", "streams.changing", "copy"),
    "info": ("Show a stream.", "streams.basics", "info"),
    "state": ("Show the state of a stream.", "streams.basics", "state"),
    "report": ("Compare streams: messages, consumers, lag.", "streams.reports", "report"),
    "subjects": ("Count the messages of each subject.", "streams.reports", "subjects"),
    "gaps": ("List the sequences that have no message.", "streams.reports", "gaps"),
    "graph": ("Draw how fast a stream grows.", "streams.graphs", "stream"),
    "find": ("Find streams by subject, age, consumers.", "streams.searching", "find"),
    "search": ("Find messages by body, header, JSON value.", "streams.searching", "search"),
    "rm": ("Remove a stream with all its messages.", "streams.basics", "rm"),
    "purge": ("Remove messages of a stream.", "streams.basics", "purge"),
    "get": ("Print a stored message.", "streams.messages", "get"),
    "view": ("Print messages, page by page.", "streams.messages", "view"),
    "rmm": ("Remove a message and erase its bytes.", "streams.messages", "rmm"),
    "seal": ("Let nothing in a stream change any more.", "streams.changing", "seal"),
    "backup": ("Back up a stream into a folder.", "streams.backups", "backup"),
    "restore": ("Restore a stream from a backup.", "streams.backups", "restore"),
    "export": ("Write messages into files: JSON lines, Parquet.", "streams.exporting", "export"),
    "import": ("Publish the messages of files into a stream.", "streams.importing", "import_"),
    "cluster": ("Leaders and copies: step-down, balance, peer-remove.", "tree", "stream_cluster"),
}
STREAM_CLUSTER: dict[str, Row] = {
    "step-down": ("Let the leader hand over.", "streams.cluster", "step_down"),
    "balance": ("Spread the leaders evenly over servers.", "streams.balancing", "streams"),
    "peer-remove": ("Move a copy away from a server.", "streams.cluster", "peer_remove"),
}
CONSUMER_CLUSTER: dict[str, Row] = {
    "step-down": ("Let the leader hand over.", "streams.cluster", "consumer_step_down"),
    "balance": ("Spread the leaders evenly over servers.", "streams.balancing", "consumers"),
}
CONSUMER: dict[str, Row] = {
    "ls": ("List the consumers of a stream.", "consumers.basics", "ls"),
    "add": ("Create a consumer.", "consumers.changing", "add"),
    "edit": ("Change the configuration of consumers.", "consumers.changing", "edit"),
    "copy": ("Create a consumer with another one's configuration.", "consumers.changing", "copy"),
    "info": ("Show a consumer.", "consumers.basics", "info"),
    "state": ("Show the state of a consumer.", "consumers.basics", "state"),
    "report": ("Compare the consumers of a stream.", "consumers.reports", "report"),
    "find": ("Find consumers by mode, age, pending messages.", "consumers.reports", "find"),
    "graph": ("Draw how fast a consumer delivers.", "streams.graphs", "consumer"),
    "rm": ("Remove a consumer.", "consumers.basics", "rm"),
    "next": ("Fetch messages from a pull consumer.", "consumers.consuming", "next_"),
    "sub": ("Print the messages of a consumer until interrupted.", "consumers.consuming", "sub"),
    "pause": ("Deliver nothing for a time.", "consumers.changing", "pause"),
    "resume": ("Deliver again.", "consumers.changing", "resume"),
    "unpin": ("Take the pin of a priority group from its client.", "consumers.changing", "unpin"),
    "reset": ("Deliver again from a sequence on.", "consumers.changing", "reset"),
    "cluster": ("Leaders: step-down, balance.", "tree", "consumer_cluster"),
}
ACCOUNT: dict[str, Row] = {
    "info": ("Show the usage and the limits of the account.", "account.info", "info"),
    "report": ("Connections and traffic: connections, statistics.", "tree", "account_report"),
    "backup": ("Back up all streams.", "account.backups", "backup"),
    "restore": ("Restore all streams.", "account.backups", "restore"),
    "tls": ("Show the certificates of the server.", "account.tls", "tls"),
}
ACCOUNT_REPORT: dict[str, Row] = {
    "connections": ("The connections of the account.", "account.reports", "connections"),
    "statistics": ("The traffic of the account.", "account.reports", "statistics"),
}
SPARK: dict[str, Row] = {
    "watch": ("Show the progress of streaming queries.", "spark.watch", "watch"),
    "package": ("Make an archive for the machines of a cluster.", "spark.package", "package"),
    "prepare": ("Make sessions on this machine start sooner.", "spark.prepare", "prepare"),
    "env": ("Print the environment for Spark's own commands.", "spark.env", "env"),
}
PIPELINE: dict[str, Row] = {
    "check": ("Check a file and draw its graph.", "spark.pipeline", "check"),
    "run": ("Run a pipeline until Ctrl-C, or once.", "spark.pipeline", "run"),
    "plan": ("Show what a changed file does.", "spark.pipeline_plan", "plan"),
    "show": ("Show rows of a step, without a run.", "spark.pipeline", "show"),
    "test": ("Run the tests of a file, without a server.", "spark.pipeline_tests", "test"),
    "sample": ("Write messages of a source as a fixture.", "spark.pipeline_tests", "sample"),
    "shell": ("Work on a file at a prompt, on one session.", "spark.shell", "shell"),
    "backfill": ("Write a range of a stream into sinks.", "spark.backfill", "backfill"),
    "rebuild": ("Make the table of a sink anew.", "spark.backfill", "rebuild"),
    "status": ("Show the progress of a pipeline.", "spark.pipeline", "status"),
    "watch": ("Show a running pipeline, live.", "spark.pipeline_watch", "watch"),
    "replay": ("Process rejected messages again.", "spark.pipeline", "replay"),
    "init": ("Print a first file.", "spark.pipeline", "init"),
}
TABLES: dict[str, Row] = {
    "maintain": ("Compact Delta tables, and remove unused files.", "spark.tables", "maintain"),
    "expire": ("Expire old snapshots of Iceberg tables.", "spark.tables", "expire"),
}
KV: dict[str, Row] = {
    "add": ("Create a bucket.", "kv.buckets", "add"),
    "edit": ("Change the configuration of a bucket.", "kv.buckets", "edit"),
    "info": ("Show a bucket.", "kv.buckets", "info"),
    "ls": ("List buckets, or the keys of a bucket.", "kv.buckets", "ls"),
    "put": ("Store a value.", "kv.keys", "put"),
    "get": ("Print the value of a key.", "kv.keys", "get"),
    "create": ("Store the value of a key that has none.", "kv.keys", "create"),
    "update": ("Store a value if the key has a certain revision.", "kv.keys", "update"),
    "del": ("Delete a key, or a bucket.", "kv.keys", "del_"),
    "purge": ("Delete a key with its history.", "kv.keys", "purge"),
    "history": ("Show the kept revisions of a key.", "kv.keys", "history"),
    "revert": ("Store the value of an earlier revision again.", "kv.keys", "revert"),
    "watch": ("Print the changes of keys.", "kv.keys", "watch"),
    "compact": ("Remove the markers of deleted keys.", "kv.buckets", "compact"),
    "dump": ("Print the keys and values of a bucket as JSON.", "kv.dump", "dump"),
    "load": ("Store keys and values out of JSON.", "kv.dump", "load"),
}
OBJECT: dict[str, Row] = {
    "add": ("Create an object store.", "objects.buckets", "add"),
    "edit": ("Change the configuration of an object store.", "objects.buckets", "edit"),
    "put": ("Store a file.", "objects.files", "put"),
    "get": ("Write an object to a file.", "objects.files", "get"),
    "info": ("Show an object store, or an object.", "objects.files", "info"),
    "ls": ("List object stores, or the objects of one.", "objects.files", "ls"),
    "update": ("Change name, description, headers of an object.", "objects.files", "update"),
    "del": ("Delete an object, or an object store.", "objects.files", "del_"),
    "seal": ("Let nothing in an object store change any more.", "objects.buckets", "seal"),
    "watch": ("Print the changes of objects.", "objects.files", "watch"),
}
CONTEXT: dict[str, Row] = {
    "add": ("Save the connection options under a name.", "contexts.basics", "add"),
    "select": ("Choose the context that commands use.", "contexts.basics", "select"),
    "unselect": ("Let commands use no context.", "contexts.basics", "unselect"),
    "previous": ("Select the context that was selected before.", "contexts.basics", "previous"),
    "ls": ("List contexts.", "contexts.basics", "ls"),
    "info": ("Show a context.", "contexts.basics", "info"),
    "edit": ("Change a context in an editor.", "contexts.basics", "edit"),
    "copy": ("Copy a context.", "contexts.basics", "copy"),
    "rm": ("Remove a context.", "contexts.basics", "rm"),
    "validate": ("Check contexts and the files that they name.", "contexts.basics", "validate"),
}
SERVICE: dict[str, Row] = {
    "ls": ("List services, or the instances of one.", "services", "ls"),
    "info": ("Show a service with its endpoints.", "services", "info"),
    "stats": ("Show the statistics of a service.", "services", "stats"),
    "ping": ("Print which services answer, and how fast.", "services", "ping"),
    "request": ("Call an endpoint, and print the answer.", "services", "request"),
    "serve": ("Offer a service that echoes, or runs a command.", "services", "serve"),
}
COUNTER: dict[str, Row] = {
    "get": ("Print the value of a counter.", "counters", "get"),
    "increment": ("Add to a counter.", "counters", "increment"),
    "decrement": ("Subtract from a counter.", "counters", "decrement"),
    "view": ("Show a counter with what it sums up.", "counters", "view"),
    "ls": ("List the counters of a stream.", "counters", "ls"),
}
SCHEMA: dict[str, Row] = {
    "search": ("List schemas.", "schemas", "search"),
    "info": ("Print a schema.", "schemas", "info"),
    "validate": ("Check a file against a schema.", "schemas", "validate"),
    "request": ("Send a request, and check the answer.", "schemas", "request"),
}
ERRORS: dict[str, Row] = {
    "ls": ("List the errors of JetStream.", "api_errors", "ls"),
    "lookup": ("Show what an err_code means.", "api_errors", "lookup"),
    "validate": ("Check a file of errors.", "api_errors", "validate"),
    "edit": ("Change or add an error in a file of errors.", "api_errors", "edit"),
}
SERVER: dict[str, Row] = {
    "check": ("Check health, for Nagios and Prometheus.", "tree", "server_check"),
    "ping": ("Print which servers answer, and how fast.", "server.listing", "ping"),
    "ls": ("List servers with their load.", "server.listing", "ls"),
    "info": ("Show a server.", "server.listing", "info"),
    "report": (
        "Compare servers: accounts, connections, health, jetstream ...",
        "tree",
        "server_report",
    ),
    "request": ("Print the pages of servers: variables, connections ...", "tree", "server_request"),
    "watch": ("Follow servers: accounts, api, jetstream, servers.", "tree", "server_watch"),
    "stream-check": ("Compare the copies of streams.", "server.copies", "stream_check"),
    "consumer-check": ("Compare the copies of consumers.", "server.copies", "consumer_check"),
    "graph": ("Draw the load of a server.", "server.graph", "graph"),
    "account": ("What servers know of an account: info, purge.", "tree", "server_account"),
    "cluster": ("Leaders and balance: step-down, peer-remove, balance.", "tree", "server_cluster"),
    "config": ("The configuration of a server: reload.", "tree", "server_config"),
    "run": ("Start a server for trying things out.", "server.throwaway", "run"),
    "generate": ("Write a configuration for a server.", "server.generating", "generate"),
    "passwd": ("Print the bcrypt hash of a password.", "server.tools", "passwd"),
    "mappings": ("Show what a subject mapping does.", "server.tools", "mappings"),
}
SERVER_WATCH: dict[str, Row] = {
    "accounts": ("Accounts: connections, traffic.", "server.watching", "accounts"),
    "api": ("Requests to JetStream: requests.", "tree", "server_watch_api"),
    "jetstream": ("JetStream: memory, files, API.", "server.watching", "jetstream"),
    "servers": ("Servers: connections, memory, traffic.", "server.watching", "servers"),
}
SERVER_WATCH_API: dict[str, Row] = {
    "requests": ("Requests by kind, account, asset.", "server.api_requests", "requests"),
}
SERVER_ACCOUNT: dict[str, Row] = {
    "info": ("Show exports, imports, mappings.", "server.administration", "info"),
    "purge": ("Remove all streams of an account.", "server.administration", "purge"),
}
SERVER_CLUSTER: dict[str, Row] = {
    "balance": ("Spread connections evenly.", "server.clusters", "balance"),
    "step-down": ("Let the leader hand over.", "server.clusters", "step_down"),
    "peer-remove": ("Remove a server for good.", "server.clusters", "peer_remove"),
}
SERVER_CONFIG: dict[str, Row] = {
    "reload": ("Let a server read its configuration again.", "server.administration", "reload"),
}
SERVER_REPORT: dict[str, Row] = {
    "accounts": ("Connections and traffic of accounts.", "server.reports", "accounts"),
    "connections": ("The connections of all servers.", "server.reports", "connections_"),
    "cpu": ("How busy the processors are.", "server.reports", "cpu"),
    "mem": ("How much memory is used.", "server.reports", "mem"),
    "health": ("Which servers are healthy.", "server.reports", "health"),
    "jetstream": ("Streams, messages, memory and files.", "server.reports", "jetstream"),
    "leafnodes": ("Leaf nodes.", "server.link_reports", "leafnodes"),
    "routes": ("Routes inside of clusters.", "server.link_reports", "routes"),
    "gateways": ("Gateways between clusters.", "server.link_reports", "gateways"),
    "downgrade": ("What an older server could not load.", "server.link_reports", "downgrade"),
}
SERVER_REQUEST: dict[str, Row] = {
    "variables": ("Variables of the server.", "server.requests", "variables"),
    "connections": ("Connections.", "server.requests", "connections"),
    "subscriptions": ("Subscriptions.", "server.requests", "subscriptions"),
    "accounts": ("Accounts.", "server.requests", "accounts"),
    "jetstream": ("JetStream: accounts, streams, consumers.", "server.requests", "jetstream"),
    "jetstream-health": ("Health of JetStream.", "server.requests", "health"),
    "leafnodes": ("Leaf nodes.", "server.requests", "leafnodes"),
    "routes": ("Routes.", "server.requests", "routes"),
    "gateways": ("Gateways.", "server.requests", "gateways"),
    "raft": ("Groups of copies.", "server.requests", "raft"),
    "ipqueue": ("Queues inside of the server.", "server.requests", "ipqueue"),
    "profile": ("Write profiles into files.", "server.profiles", "profile"),
    "kick": ("Disconnect a client.", "server.requests", "kick"),
}
PLGD: dict[str, Row] = {
    "fleet": (
        "Make up a fleet of devices: its events, its store, its truth.",
        "plgd.fleet",
        "fleet",
    ),
    "publish": ("Publish events into a stream, each once.", "plgd.publish", "publish"),
    "decode": ("Print the events of a stream, of lines, or of a message.", "plgd.decode", "decode"),
    "reconcile": ("Find and repair what a stream lacks.", "plgd.reconcile", "reconcile"),
    "gateway": ("Serve the hub's gRPC gateway from an event store.", "plgd.gateway", "gateway"),
    "run": ("Bring a hub's events into tables as they come.", "plgd.run", "run"),
    "backfill": ("Make the tables of a stream's events.", "plgd.run", "backfill"),
    "maintain": (
        "Compact a hub's tables, delete old rows and files.",
        "plgd.maintain",
        "maintain",
    ),
    "report": ("Make an HTML page about the devices of a hub.", "plgd.report", "report"),
}
SERVER_CHECK: dict[str, Row] = {
    "connection": ("Clients can connect, and how fast.", "server.checks", "connection"),
    "stream": ("A stream: messages, sources, mirror, copies.", "server.checks", "stream"),
    "consumer": ("A consumer: pending acks, backlog.", "server.checks", "consumer"),
    "message": ("The last message of a subject.", "server.checks", "message"),
    "jetstream": ("Usage of the account against its limits.", "server.checks", "jetstream"),
    "meta": ("The JetStream cluster.", "server.checks", "meta"),
    "server": ("A server: load, uptime.", "server.checks", "server"),
    "kv": ("A key-value bucket.", "server.checks", "kv"),
    "credential": ("How long a credentials file is valid.", "server.checks", "credential"),
    "request": ("A service: its answer, and how fast.", "server.checks", "request"),
    "exporter": ("Serve checks as metrics of Prometheus.", "server.exporter", "exporter"),
}

BENCH: dict[str, Row] = {
    "pub": ("Publish as fast as the server takes it.", "bench.core", "pub"),
    "sub": ("Subscribe, and count what arrives.", "bench.core", "sub"),
    "service": ("Requests and answers: request, serve.", "tree", "bench_service"),
    "js": ("Streams: pub, consume, fetch, ordered, push, get.", "tree", "bench_js"),
    "kv": ("Key-value buckets: put, get.", "tree", "bench_kv"),
}
BENCH_SERVICE: dict[str, Row] = {
    "request": ("Send requests, one at a time.", "bench.core", "request"),
    "serve": ("Answer requests until interrupted.", "bench.core", "serve"),
}
BENCH_JS: dict[str, Row] = {
    "pub": ("Publish: sync, async, atomic, fast.", "tree", "bench_js_pub"),
    "ordered": ("Consume without acks, each client all.", "bench.streams", "ordered"),
    "consume": ("Consume, with requests ahead.", "bench.streams", "consume"),
    "fetch": ("Fetch batches, one after the other.", "bench.streams", "fetch"),
    "push": ("Get messages pushed, each client all.", "bench.streams", "push"),
    "get": ("Get by sequence: sync, batch.", "tree", "bench_js_get"),
}
BENCH_JS_PUB: dict[str, Row] = {
    "sync": ("One message at a time.", "bench.streams", "pub_sync"),
    "async": ("Many messages on the way at once.", "bench.streams", "pub_async"),
    "atomic": ("Batches that are stored as a whole.", "bench.streams", "pub_atomic"),
    "fast": ("Fast batches with few answers.", "bench.streams", "pub_fast"),
}
BENCH_JS_GET: dict[str, Row] = {
    "sync": ("One message at a time.", "bench.streams", "get_sync"),
    "batch": ("Many messages with one request.", "bench.streams", "get_batch"),
}
BENCH_KV: dict[str, Row] = {
    "put": ("Put keys, one at a time.", "bench.buckets", "put"),
    "get": ("Get keys, one at a time.", "bench.buckets", "get"),
}

AUTH: dict[str, Row] = {
    "operator": ("Who vouches for accounts: add, edit, keys, backup ...", "tree", "auth_operator"),
    "account": (
        "Accounts: add, edit, push, keys, exports, imports, mappings ...",
        "tree",
        "auth_account",
    ),
    "user": ("Users of accounts: add, edit, credential ...", "tree", "auth_user"),
    "nkey": ("Keys: gen, show, sign, verify, seal, unseal.", "tree", "auth_nkey"),
}
AUTH_OPERATOR: dict[str, Row] = {
    "add": ("Make an operator.", "auth.operators", "add"),
    "edit": ("Change an operator.", "auth.operators", "edit"),
    "info": ("Show an operator.", "auth.operators", "info"),
    "ls": ("List operators.", "auth.operators", "ls"),
    "select": ("Choose the operator that commands use.", "auth.operators", "select"),
    "keys": ("Signing keys: ls, add, rm.", "tree", "auth_operator_keys"),
    "config": ("Print what makes a server trust an operator.", "auth.operators", "config"),
    "import": ("Take over an operator.", "auth.operators", "import_"),
    "backup": ("Write an operator and all below it to a file.", "auth.operator_backups", "backup"),
    "restore": ("Restore an operator from such a file.", "auth.operator_backups", "restore"),
}
AUTH_OPERATOR_KEYS: dict[str, Row] = {
    "ls": ("List signing keys.", "auth.operators", "keys_ls"),
    "add": ("Add a signing key.", "auth.operators", "keys_add"),
    "rm": ("Remove a signing key.", "auth.operators", "keys_rm"),
}
AUTH_ACCOUNT: dict[str, Row] = {
    "add": ("Make an account.", "auth.accounts", "add"),
    "edit": ("Change an account.", "auth.accounts", "edit"),
    "info": ("Show an account.", "auth.accounts", "info"),
    "ls": ("List accounts.", "auth.accounts", "ls"),
    "push": ("Send an account's JWT to the servers.", "auth.resolving", "push"),
    "query": ("Show an account as the servers have it.", "auth.resolving", "query"),
    "keys": ("Signing keys with roles: add, info, ls, rm.", "tree", "auth_account_keys"),
    "exports": ("Exports: add, edit, info, ls, rm.", "tree", "auth_account_exports"),
    "imports": ("Imports: add, edit, info, ls, rm.", "tree", "auth_account_imports"),
    "mappings": ("Subject mappings: add, info, ls, rm.", "tree", "auth_account_mappings"),
}
AUTH_ACCOUNT_KEYS: dict[str, Row] = {
    "add": ("Add a signing key for a role.", "auth.account_keys", "add"),
    "info": ("Show a signing key.", "auth.account_keys", "info"),
    "ls": ("List signing keys.", "auth.account_keys", "ls"),
    "rm": ("Remove a signing key.", "auth.account_keys", "rm"),
}
AUTH_ACCOUNT_EXPORTS: dict[str, Row] = {
    "add": ("Let other accounts import a subject.", "auth.sharing", "export_add"),
    "edit": ("Change an export.", "auth.sharing", "export_edit"),
    "info": ("Show an export.", "auth.sharing", "export_info"),
    "ls": ("List exports.", "auth.sharing", "export_ls"),
    "rm": ("Remove an export.", "auth.sharing", "export_rm"),
}
AUTH_ACCOUNT_IMPORTS: dict[str, Row] = {
    "add": ("Import a subject of another account.", "auth.sharing", "import_add"),
    "edit": ("Change an import.", "auth.sharing", "import_edit"),
    "info": ("Show an import.", "auth.sharing", "import_info"),
    "ls": ("List imports.", "auth.sharing", "import_ls"),
    "rm": ("Remove an import.", "auth.sharing", "import_rm"),
}
AUTH_ACCOUNT_MAPPINGS: dict[str, Row] = {
    "add": ("Map a subject to another.", "auth.sharing", "mapping_add"),
    "info": ("Show a mapping.", "auth.sharing", "mapping_info"),
    "ls": ("List mappings.", "auth.sharing", "mapping_ls"),
    "rm": ("Remove a mapping.", "auth.sharing", "mapping_rm"),
}
AUTH_USER: dict[str, Row] = {
    "add": ("Make a user.", "auth.users", "add"),
    "edit": ("Change a user.", "auth.users", "edit"),
    "info": ("Show a user.", "auth.users", "info"),
    "ls": ("List users.", "auth.users", "ls"),
    "rm": ("Remove a user.", "auth.users", "rm"),
    "credential": ("Write a credentials file.", "auth.users", "credential"),
}
AUTH_NKEY: dict[str, Row] = {
    "gen": ("Make a key.", "auth.keys", "gen"),
    "show": ("Print a public key.", "auth.keys", "show"),
    "sign": ("Sign a file.", "auth.keys", "sign"),
    "verify": ("Check a signature.", "auth.keys", "verify_"),
    "seal": ("Encrypt a file.", "auth.keys", "seal"),
    "unseal": ("Decrypt a file.", "auth.keys", "unseal"),
}

AUDIT: dict[str, Row] = {
    "gather": ("Gather what all servers say into an archive.", "audit.gathering", "gather_"),
    "analyze": ("Check an archive.", "audit.analysis", "analyze"),
    "checks": ("List the checks.", "audit.analysis", "checks_"),
}

# group -> commands that only read, and therefore take --store
READERS: dict[str, frozenset[str]] = {
    "pelton": frozenset(("explain", "sql", "export", "replay", "diff-stream")),
    "stream": frozenset(("ls", "info", "state", "report", "subjects", "gaps", "find", "search"))
    | frozenset(("get", "view", "backup", "export")),
    "consumer": frozenset(("ls", "info", "state", "report", "find")),
    "kv": frozenset(("ls", "info", "get", "history", "dump")),
    "object": frozenset(("ls", "info", "get")),
    "counter": frozenset(("get", "view", "ls")),
}
