"""Command lines to copy, by topic; the reference and the examples of help texts are made of them, too."""

# topic -> its title and its lines. Each line is one that the command line understands.
CHEATS: dict[str, dict[str, tuple[str, ...]]] = {
    "pub": {
        "Publish a message, or what standard input has": (
            "pelton pub orders.new 'one coffee'",
            "pelton pub orders.new --force-stdin",
        ),
        "Publish 100 numbered messages, one a second, with a header": (
            "pelton pub orders.new 'order {{Count}}' --count 100 --sleep 1s -H 'Shop: Bern'",
        ),
        "Wait until a stream has stored it; store all lines or none": (
            "pelton pub orders.new 'one coffee' -J",
            "pelton pub orders.new --send-on newline --atomic",
        ),
        "Let the stream publish later, or again and again": (
            "pelton pub later.1 'good morning' --after 8h --schedule-dest orders.new",
            "pelton pub clock.1 tick --every 30s --schedule-dest clock.tick",
        ),
    },
    "sub": {
        "Print what arrives, as it is or as JSON": (
            "pelton sub 'orders.>'",
            "pelton sub 'orders.>' --raw",
            "pelton sub 'orders.>' --json",
            "pelton sub 'orders.>' --format '{time} {subject} {header.Shop}: {data}'",
        ),
        "Read a stream: all and end, the newest of each subject, the last hour": (
            "pelton sub 'orders.>' --all -T",
            "pelton sub --stream ORDERS --last-per-subject",
            "pelton sub --stream ORDERS --since 1h",
        ),
        "See requests beside their answers; count by subject": (
            "pelton sub 'rpc.>' --match-replies",
            "pelton sub '>' --report-subjects --wait 10s",
        ),
        "Write each message into a file": ("pelton sub 'orders.>' --dump messages",),
    },
    "request": {
        "Ask, and print the first answer; or three; or all within a second": (
            "pelton req time.now ''",
            "pelton req time.now '' --replies 3",
            "pelton req time.now '' --replies 0 --reply-timeout 1s",
        ),
        "Answer requests with a text, with the request, with a command's output": (
            "pelton reply time.now 'it is {{Time}}'",
            "pelton reply echo --echo",
            "pelton reply 'disk.*' --command 'df -h'",
        ),
    },
    "stream": {
        "Create a stream: with questions, with options, out of a file": (
            "pelton stream add ORDERS",
            "pelton stream add ORDERS --subjects 'orders.>' --max-age 30d --defaults",
            "pelton stream add ORDERS --config orders.json",
        ),
        "Look at streams": (
            "pelton stream ls",
            "pelton stream info ORDERS",
            "pelton stream report --messages",
            "pelton stream subjects ORDERS",
        ),
        "Change one, in an editor, or many at once; only show what would change": (
            "pelton stream edit ORDERS --max-age 7d",
            "pelton stream edit ORDERS -i",
            "pelton stream edit 'ORDERS_*' --replicas 3 --dry-run",
        ),
        "Read messages: a page, a sequence, the newest of a subject, all that contain a text": (
            "pelton stream view ORDERS 20 --since 1h",
            "pelton stream get ORDERS 1234",
            "pelton stream get ORDERS -S orders.new",
            "pelton stream search ORDERS coffee",
        ),
        "Remove messages: one, those of a subject, all but the newest 100": (
            "pelton stream rmm ORDERS 1234",
            "pelton stream purge ORDERS --subject orders.old",
            "pelton stream purge ORDERS --keep 100",
        ),
        "Find streams: without messages, unused for a day, with a subject": (
            "pelton stream find --empty",
            "pelton stream find --idle 1d",
            "pelton stream find --subject orders.new",
        ),
        "Remove a stream": ("pelton stream rm ORDERS",),
        "Copy a configuration, see what is missing, watch it grow": (
            "pelton stream copy ORDERS RETURNS --subjects 'returns.>'",
            "pelton stream gaps ORDERS",
            "pelton stream state ORDERS",
            "pelton stream graph ORDERS",
        ),
        "Move leaders and copies in a cluster": (
            "pelton stream cluster step-down ORDERS",
            "pelton stream cluster balance --dry-run",
            "pelton stream cluster peer-remove ORDERS n3",
        ),
        "Let nothing change any more": ("pelton stream seal ORDERS",),
    },
    "files": {
        "Write a stream into a file, go on after an interruption; fill a stream from one": (
            "pelton stream export ORDERS orders.jsonl --subject orders.new --since 7d",
            "pelton stream export ORDERS orders.jsonl --resume",
            "pelton stream import COPY orders.jsonl --map 'orders.>:copy.>'",
        ),
        "Read a store folder or a backup without a server": (
            "pelton stream view ORDERS --store ./data",
            "pelton sql 'select count(*) from ORDERS' --store ./backups",
        ),
        "Publish a stream again, ten times as fast; see what two streams do not share": (
            "pelton replay ORDERS --speed 10x --map 'orders.>:test.>'",
            "pelton diff-stream ORDERS ORDERS --other-context prod",
        ),
    },
    "consumer": {
        "Create a pull consumer, and one that pushes": (
            "pelton consumer add ORDERS billing --pull --filter orders.new --defaults",
            "pelton consumer add ORDERS monitor --target monitor.orders --ack none --defaults",
        ),
        "Fetch messages and acknowledge them; print all": (
            "pelton consumer next ORDERS billing -n 5",
            "pelton consumer sub ORDERS billing",
        ),
        "See why one does not deliver": (
            "pelton consumer report ORDERS",
            "pelton consumer info ORDERS billing",
            "pelton explain ORDERS billing",
        ),
        "Pause for an hour, go on, deliver again from a sequence on": (
            "pelton consumer pause ORDERS billing 1h",
            "pelton consumer resume ORDERS billing",
            "pelton consumer reset ORDERS billing --sequence 1000",
        ),
        "Find consumers that wait or that nobody uses": (
            "pelton consumer find ORDERS --ack-pending 100",
            "pelton consumer find ORDERS --idle 1d",
        ),
        "List, change, copy, remove": (
            "pelton consumer ls ORDERS",
            "pelton consumer edit ORDERS billing --max-pending 500",
            "pelton consumer copy ORDERS billing shipping --filter orders.paid",
            "pelton consumer rm ORDERS billing",
        ),
        "Watch one, move its leader, free a pinned group": (
            "pelton consumer state ORDERS billing",
            "pelton consumer graph ORDERS billing",
            "pelton consumer cluster step-down ORDERS billing",
            "pelton consumer cluster balance ORDERS --dry-run",
            "pelton consumer unpin ORDERS billing workers",
        ),
    },
    "kv": {
        "Create a bucket; with history, with keys that expire": (
            "pelton kv add CONFIG",
            "pelton kv add CONFIG --history 5 --marker-ttl 1h",
        ),
        "Store and read values": (
            "pelton kv put CONFIG color blue",
            "pelton kv get CONFIG color --raw",
            "pelton kv create CONFIG lock me --ttl 30s",
            "pelton kv update CONFIG color green 7",
        ),
        "See what was: the history of a key, and go back": (
            "pelton kv history CONFIG color",
            "pelton kv revert CONFIG color 7",
        ),
        "Follow changes, list keys": (
            "pelton kv watch CONFIG 'user.>'",
            "pelton kv ls CONFIG --display-value",
        ),
        "Copy a bucket through a file": (
            "pelton kv dump CONFIG",
            "pelton kv load CONFIG config.jsonl",
        ),
        "Delete a key, a key with its history, a bucket": (
            "pelton kv del CONFIG color",
            "pelton kv purge CONFIG color",
            "pelton kv del CONFIG",
        ),
        "Look at a bucket, change it, tidy it up": (
            "pelton kv info CONFIG",
            "pelton kv edit CONFIG --history 10 --ttl 30d",
            "pelton kv compact CONFIG --older-than 1h",
        ),
    },
    "object": {
        "Keep files": (
            "pelton object add FILES",
            "pelton object put FILES report.pdf",
            "pelton object put FILES --name today.log",
        ),
        "Get them back, follow changes": (
            "pelton object get FILES report.pdf -O copy.pdf",
            "pelton object ls FILES",
            "pelton object watch FILES",
        ),
        "Delete one, let nothing change any more": (
            "pelton object del FILES report.pdf",
            "pelton object seal FILES",
        ),
        "Look at a store or an object, change them": (
            "pelton object info FILES",
            "pelton object edit FILES --ttl 90d",
            "pelton object update FILES report.pdf --rename reports/2026.pdf",
        ),
    },
    "bench": {
        "Publish and receive; start the second line first": (
            "pelton bench pub load --clients 4 --msgs 1000000 --size 512",
            "pelton bench sub load --clients 4 --msgs 1000000",
        ),
        "Requests; start the second line first": (
            "pelton bench service request ask --clients 4",
            "pelton bench service serve ask --sleep 50us",
        ),
        "Publish into a stream: one by one, many at once, in batches": (
            "pelton bench js pub sync load --create",
            "pelton bench js pub async load --batch 1000",
            "pelton bench js pub atomic load --create --purge --batch 500",
            "pelton bench js pub fast load --create --purge",
        ),
        "Read the stream": (
            "pelton bench js consume --clients 4",
            "pelton bench js fetch --batch 100 --acks none",
            "pelton bench js ordered --no-progress",
            "pelton bench js get batch",
        ),
        "Keys of a bucket": (
            "pelton bench kv put --msgs 10000",
            "pelton bench kv get --randomize 10000",
        ),
        "A steady load of 5,000 messages a second for 30 seconds": (
            "pelton bench pub load --throughput 5000 --duration 30s",
        ),
        "Tidy up": ("pelton stream rm benchstream", "pelton kv del benchbucket"),
        "Get messages pushed, or one at a time": (
            "pelton bench js push --acks none",
            "pelton bench js get sync",
        ),
    },
    "events": {
        "Follow everything, on one line each": ("pelton events --all --short",),
        "Only advisories about a stream": (
            "pelton events --js-advisory --no-srv-advisory --filter ORDERS",
        ),
        "Keep advisories in a stream, and read those of the last hour": (
            "pelton stream add ADVISORIES --subjects '$JS.EVENT.ADVISORY.>' --max-age 7d --defaults",
            "pelton events --stream ADVISORIES --since 1h",
        ),
    },
    "network": {
        "Who gets a message": (
            "pelton trace orders.new",
            "pelton trace orders.new hello --deliver --timestamp",
        ),
        "How far away is the server": (
            "pelton rtt",
            "pelton latency --server-b nats://other:4222 --rate 1000 --duration 10s",
        ),
        "What goes on": ("pelton traffic", "pelton top"),
    },
    "context": {
        "Keep URL and credentials under a name, and use it": (
            "pelton --server nats://prod:4222 --creds prod.creds context add prod --select",
            "pelton --context prod stream ls",
        ),
        "Change between contexts": (
            "pelton context ls",
            "pelton context select staging",
            "pelton context previous",
        ),
        "Check all of them": ("pelton context validate --connect",),
        "Show, change, copy, remove one; use none": (
            "pelton context info prod",
            "pelton context edit prod",
            "pelton context copy prod spare",
            "pelton context rm spare",
            "pelton context unselect",
        ),
    },
    "server": {
        "Look at servers, with a user of the system account": (
            "pelton server ls",
            "pelton server info",
            "pelton server report connections --sort in-msgs",
            "pelton server report jetstream",
        ),
        "Check health, for Nagios or Prometheus": (
            "pelton server check connection",
            "pelton server check stream --stream ORDERS",
        ),
        "Start one here": (
            "pelton serve",
            "pelton server run",
        ),
    },
    "account": {
        "Usage and limits": ("pelton account info",),
        "Who is connected, and what goes through": (
            "pelton account report connections --top 20",
            "pelton account report statistics",
            "pelton account tls",
        ),
        "Back up all streams, and restore them": (
            "pelton account backup backups/all",
            "pelton account restore backups/all",
        ),
    },
    "auth": {
        "Make an operator, an account with JetStream, a user with a credentials file": (
            "pelton auth operator add acme",
            "pelton auth account add orders --jetstream --defaults",
            "pelton auth user add billing orders --credential billing.creds --defaults",
        ),
        "Let a server trust the operator, and tell it an account": (
            "pelton auth operator config acme",
            "pelton auth account push orders",
        ),
        "Say what a user may do, for how long; end it": (
            "pelton auth user add web orders --pub-allow 'orders.>' --sub-deny '>' --expire 30d",
            "pelton auth user credential new.creds billing orders",
            "pelton auth user rm web orders --revoke",
        ),
        "Look at them": (
            "pelton auth operator ls",
            "pelton auth account info orders",
            "pelton auth user ls orders",
        ),
        "Share a subject between accounts": (
            "pelton auth account exports add prices 'prices.>' orders",
            "pelton auth account imports add prices 'prices.>' shop --source orders",
        ),
        "Make a key": (
            "pelton auth nkey gen user --output user.nk",
            "pelton auth nkey show user.nk",
        ),
    },
    "audit": {
        "Gather what all servers say, and check it": (
            "pelton audit gather --output audit.zip",
            "pelton audit analyze audit.zip",
            "pelton audit checks",
        ),
    },
    "service": {
        "Who offers what": (
            "pelton service ls",
            "pelton service stats orders",
            "pelton service ping",
        ),
        "Call an endpoint, offer one": (
            "pelton service request orders.price coffee",
            "pelton service serve orders --command 'cat prices'",
        ),
        "Show one": ("pelton service info orders",),
    },
    "counter": {
        "Count in a stream that allows it": (
            "pelton stream add COUNTS --subjects 'count.>' --allow-counter --defaults",
            "pelton counter increment count.visits 5",
            "pelton counter get count.visits",
        ),
        "Look at counters, count down": (
            "pelton counter ls COUNTS",
            "pelton counter view count.visits",
            "pelton counter decrement count.visits 2",
        ),
    },
    "backup": {
        "Back up a stream into a folder, and restore it": (
            "pelton stream backup ORDERS backups/orders",
            "pelton stream restore backups/orders",
        ),
        "Back up a store folder again and again, only what is new": (
            "pelton store backup /var/lib/pelton backups",
            "pelton store backups backups",
        ),
        "Check a store folder, repair it, look into it, without a server": (
            "pelton store ls /var/lib/pelton",
            "pelton store check /var/lib/pelton",
            "pelton store verify /var/lib/pelton",
            "pelton store repair /var/lib/pelton --dry-run",
            "pelton store dump /var/lib/pelton ORDERS --count 10",
            "pelton store restore backups /var/lib/restored",
            "pelton store prune backups --keep 30",
        ),
    },
    "apply": {
        "Declare streams and buckets in files": (
            "pelton plan streams/",
            "pelton apply streams/",
            "pelton drift streams/",
        ),
        "Begin with what a server has": ("pelton export --format yaml",),
        "Check files without a server; keep a server as they say": (
            "pelton validate streams/",
            "pelton diff streams/",
            "pelton apply streams/ --watch",
        ),
    },
    "sql": {
        "Ask a stream, follow it": (
            "pelton sql 'select subject, count(*) from ORDERS group by 1'",
            "pelton sql 'select * from ORDERS' --follow",
        ),
        "JSON payloads as columns; rows into a stream": (
            "pelton sql 'select sum(price) from ORDERS' --json-columns ORDERS",
            "pelton sql 'select item, count(*) n from ORDERS group by 1' --to 'report.{item}'",
        ),
    },
    "errors": {
        "What an error means": (
            "pelton errors lookup 10059",
            "pelton errors ls consumer",
        ),
        "Check messages against their schemas": (
            "pelton schema search stream",
            "pelton schema info stream_configuration --yaml",
            "pelton schema validate stream_configuration orders.json",
            "pelton schema request '$JS.API.INFO'",
        ),
    },
}
OTHER = {
    "publish": "pub",
    "export": "files",
    "import": "files",
    "replay": "files",
    "subscribe": "sub",
    "req": "request",
    "reply": "request",
    "latency": "network",
    "trace": "network",
    "contexts": "context",
    "restore": "backup",
    "store": "backup",
    "schema": "errors",
    "operator": "auth",
    "user": "auth",
    "plan": "apply",
    "str": "stream",
    "con": "consumer",
}


def topic_of(name: str) -> str:
    """The topic that a name stands for."""
    return OTHER.get(name, name)
