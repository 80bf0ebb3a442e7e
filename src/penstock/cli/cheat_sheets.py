"""Command lines to copy, by topic; the reference and the examples of help texts are made of them, too."""

# topic -> its title and its lines. Each line is one that the command line understands.
CHEATS: dict[str, dict[str, tuple[str, ...]]] = {
    "pub": {
        "Publish a message, or what standard input has": (
            "penstock pub orders.new 'one coffee'",
            "penstock pub orders.new --force-stdin",
        ),
        "Publish 100 numbered messages, one a second, with a header": (
            "penstock pub orders.new 'order {{Count}}' --count 100 --sleep 1s -H 'Shop: Bern'",
        ),
        "Wait until a stream has stored it; store all lines or none": (
            "penstock pub orders.new 'one coffee' -J",
            "penstock pub orders.new --send-on newline --atomic",
        ),
        "Let the stream publish later, or again and again": (
            "penstock pub later.1 'good morning' --after 8h --schedule-dest orders.new",
            "penstock pub clock.1 tick --every 30s --schedule-dest clock.tick",
        ),
    },
    "sub": {
        "Print what arrives, as it is or as JSON": (
            "penstock sub 'orders.>'",
            "penstock sub 'orders.>' --raw",
            "penstock sub 'orders.>' --json",
            "penstock sub 'orders.>' --format '{time} {subject} {header.Shop}: {data}'",
        ),
        "Read a stream: all and end, the newest of each subject, the last hour": (
            "penstock sub 'orders.>' --all -T",
            "penstock sub --stream ORDERS --last-per-subject",
            "penstock sub --stream ORDERS --since 1h",
        ),
        "See requests beside their answers; count by subject": (
            "penstock sub 'rpc.>' --match-replies",
            "penstock sub '>' --report-subjects --wait 10s",
        ),
        "Write each message into a file": ("penstock sub 'orders.>' --dump messages",),
    },
    "request": {
        "Ask, and print the first answer; or three; or all within a second": (
            "penstock req time.now ''",
            "penstock req time.now '' --replies 3",
            "penstock req time.now '' --replies 0 --reply-timeout 1s",
        ),
        "Answer requests with a text, with the request, with a command's output": (
            "penstock reply time.now 'it is {{Time}}'",
            "penstock reply echo --echo",
            "penstock reply 'disk.*' --command 'df -h'",
        ),
    },
    "stream": {
        "Create a stream: with questions, with options, out of a file": (
            "penstock stream add ORDERS",
            "penstock stream add ORDERS --subjects 'orders.>' --max-age 30d --defaults",
            "penstock stream add ORDERS --config orders.json",
        ),
        "Look at streams": (
            "penstock stream ls",
            "penstock stream info ORDERS",
            "penstock stream report --messages",
            "penstock stream subjects ORDERS",
        ),
        "Change one, in an editor, or many at once; only show what would change": (
            "penstock stream edit ORDERS --max-age 7d",
            "penstock stream edit ORDERS -i",
            "penstock stream edit 'ORDERS_*' --replicas 3 --dry-run",
        ),
        "Read messages: a page, a sequence, the newest of a subject, all that contain a text": (
            "penstock stream view ORDERS 20 --since 1h",
            "penstock stream get ORDERS 1234",
            "penstock stream get ORDERS -S orders.new",
            "penstock stream search ORDERS coffee",
        ),
        "Remove messages: one, those of a subject, all but the newest 100": (
            "penstock stream rmm ORDERS 1234",
            "penstock stream purge ORDERS --subject orders.old",
            "penstock stream purge ORDERS --keep 100",
        ),
        "Find streams: without messages, unused for a day, with a subject": (
            "penstock stream find --empty",
            "penstock stream find --idle 1d",
            "penstock stream find --subject orders.new",
        ),
        "Remove a stream": ("penstock stream rm ORDERS",),
        "Copy a configuration, see what is missing, watch it grow": (
            "penstock stream copy ORDERS RETURNS --subjects 'returns.>'",
            "penstock stream gaps ORDERS",
            "penstock stream state ORDERS",
            "penstock stream graph ORDERS",
        ),
        "Move leaders and copies in a cluster": (
            "penstock stream cluster step-down ORDERS",
            "penstock stream cluster balance --dry-run",
            "penstock stream cluster peer-remove ORDERS n3",
        ),
        "Let nothing change any more": ("penstock stream seal ORDERS",),
    },
    "files": {
        "Write a stream into a file, go on after an interruption; fill a stream from one": (
            "penstock stream export ORDERS orders.jsonl --subject orders.new --since 7d",
            "penstock stream export ORDERS orders.jsonl --resume",
            "penstock stream import COPY orders.jsonl --map 'orders.>:copy.>'",
        ),
        "Read a store folder or a backup without a server": (
            "penstock stream view ORDERS --store ./data",
            "penstock sql 'select count(*) from ORDERS' --store ./backups",
        ),
        "Publish a stream again, ten times as fast; see what two streams do not share": (
            "penstock replay ORDERS --speed 10x --map 'orders.>:test.>'",
            "penstock diff-stream ORDERS ORDERS --other-context prod",
        ),
    },
    "consumer": {
        "Create a pull consumer, and one that pushes": (
            "penstock consumer add ORDERS billing --pull --filter orders.new --defaults",
            "penstock consumer add ORDERS monitor --target monitor.orders --ack none --defaults",
        ),
        "Fetch messages and acknowledge them; print all": (
            "penstock consumer next ORDERS billing -n 5",
            "penstock consumer sub ORDERS billing",
        ),
        "See why one does not deliver": (
            "penstock consumer report ORDERS",
            "penstock consumer info ORDERS billing",
            "penstock explain ORDERS billing",
        ),
        "Pause for an hour, go on, deliver again from a sequence on": (
            "penstock consumer pause ORDERS billing 1h",
            "penstock consumer resume ORDERS billing",
            "penstock consumer reset ORDERS billing --sequence 1000",
        ),
        "Find consumers that wait or that nobody uses": (
            "penstock consumer find ORDERS --ack-pending 100",
            "penstock consumer find ORDERS --idle 1d",
        ),
        "List, change, copy, remove": (
            "penstock consumer ls ORDERS",
            "penstock consumer edit ORDERS billing --max-pending 500",
            "penstock consumer copy ORDERS billing shipping --filter orders.paid",
            "penstock consumer rm ORDERS billing",
        ),
        "Watch one, move its leader, free a pinned group": (
            "penstock consumer state ORDERS billing",
            "penstock consumer graph ORDERS billing",
            "penstock consumer cluster step-down ORDERS billing",
            "penstock consumer cluster balance ORDERS --dry-run",
            "penstock consumer unpin ORDERS billing workers",
        ),
    },
    "kv": {
        "Create a bucket; with history, with keys that expire": (
            "penstock kv add CONFIG",
            "penstock kv add CONFIG --history 5 --marker-ttl 1h",
        ),
        "Store and read values": (
            "penstock kv put CONFIG color blue",
            "penstock kv get CONFIG color --raw",
            "penstock kv create CONFIG lock me --ttl 30s",
            "penstock kv update CONFIG color green 7",
        ),
        "See what was: the history of a key, and go back": (
            "penstock kv history CONFIG color",
            "penstock kv revert CONFIG color 7",
        ),
        "Follow changes, list keys": (
            "penstock kv watch CONFIG 'user.>'",
            "penstock kv ls CONFIG --display-value",
        ),
        "Copy a bucket through a file": (
            "penstock kv dump CONFIG",
            "penstock kv load CONFIG config.jsonl",
        ),
        "Delete a key, a key with its history, a bucket": (
            "penstock kv del CONFIG color",
            "penstock kv purge CONFIG color",
            "penstock kv del CONFIG",
        ),
        "Look at a bucket, change it, tidy it up": (
            "penstock kv info CONFIG",
            "penstock kv edit CONFIG --history 10 --ttl 30d",
            "penstock kv compact CONFIG --older-than 1h",
        ),
    },
    "object": {
        "Keep files": (
            "penstock object add FILES",
            "penstock object put FILES report.pdf",
            "penstock object put FILES --name today.log",
        ),
        "Get them back, follow changes": (
            "penstock object get FILES report.pdf -O copy.pdf",
            "penstock object ls FILES",
            "penstock object watch FILES",
        ),
        "Delete one, let nothing change any more": (
            "penstock object del FILES report.pdf",
            "penstock object seal FILES",
        ),
        "Look at a store or an object, change them": (
            "penstock object info FILES",
            "penstock object edit FILES --ttl 90d",
            "penstock object update FILES report.pdf --rename reports/2026.pdf",
        ),
    },
    "bench": {
        "Publish and receive; start the second line first": (
            "penstock bench pub load --clients 4 --msgs 1000000 --size 512",
            "penstock bench sub load --clients 4 --msgs 1000000",
        ),
        "Requests; start the second line first": (
            "penstock bench service request ask --clients 4",
            "penstock bench service serve ask --sleep 50us",
        ),
        "Publish into a stream: one by one, many at once, in batches": (
            "penstock bench js pub sync load --create",
            "penstock bench js pub async load --batch 1000",
            "penstock bench js pub atomic load --create --purge --batch 500",
            "penstock bench js pub fast load --create --purge",
        ),
        "Read the stream": (
            "penstock bench js consume --clients 4",
            "penstock bench js fetch --batch 100 --acks none",
            "penstock bench js ordered --no-progress",
            "penstock bench js get batch",
        ),
        "Keys of a bucket": (
            "penstock bench kv put --msgs 10000",
            "penstock bench kv get --randomize 10000",
        ),
        "A steady load of 5,000 messages a second for 30 seconds": (
            "penstock bench pub load --throughput 5000 --duration 30s",
        ),
        "Tidy up": ("penstock stream rm benchstream", "penstock kv del benchbucket"),
        "Get messages pushed, or one at a time": (
            "penstock bench js push --acks none",
            "penstock bench js get sync",
        ),
    },
    "events": {
        "Follow everything, on one line each": ("penstock events --all --short",),
        "Only advisories about a stream": (
            "penstock events --js-advisory --no-srv-advisory --filter ORDERS",
        ),
        "Keep advisories in a stream, and read those of the last hour": (
            "penstock stream add ADVISORIES --subjects '$JS.EVENT.ADVISORY.>' --max-age 7d --defaults",
            "penstock events --stream ADVISORIES --since 1h",
        ),
    },
    "network": {
        "Who gets a message": (
            "penstock trace orders.new",
            "penstock trace orders.new hello --deliver --timestamp",
        ),
        "How far away is the server": (
            "penstock rtt",
            "penstock latency --server-b nats://other:4222 --rate 1000 --duration 10s",
        ),
        "What goes on": ("penstock traffic", "penstock top"),
    },
    "context": {
        "Keep URL and credentials under a name, and use it": (
            "penstock --server nats://prod:4222 --creds prod.creds context add prod --select",
            "penstock --context prod stream ls",
        ),
        "Change between contexts": (
            "penstock context ls",
            "penstock context select staging",
            "penstock context previous",
        ),
        "Check all of them": ("penstock context validate --connect",),
        "Show, change, copy, remove one; use none": (
            "penstock context info prod",
            "penstock context edit prod",
            "penstock context copy prod spare",
            "penstock context rm spare",
            "penstock context unselect",
        ),
    },
    "server": {
        "Look at servers, with a user of the system account": (
            "penstock server ls",
            "penstock server info",
            "penstock server report connections --sort in-msgs",
            "penstock server report jetstream",
        ),
        "Check health, for Nagios or Prometheus": (
            "penstock server check connection",
            "penstock server check stream --stream ORDERS",
        ),
        "Start one here": (
            "penstock server -js",
            "penstock server run",
        ),
    },
    "account": {
        "Usage and limits": ("penstock account info",),
        "Who is connected, and what goes through": (
            "penstock account report connections --top 20",
            "penstock account report statistics",
            "penstock account tls",
        ),
        "Back up all streams, and restore them": (
            "penstock account backup backups/all",
            "penstock account restore backups/all",
        ),
    },
    "auth": {
        "Make an operator, an account with JetStream, a user with a credentials file": (
            "penstock auth operator add acme",
            "penstock auth account add orders --jetstream --defaults",
            "penstock auth user add billing orders --credential billing.creds --defaults",
        ),
        "Let a server trust the operator, and tell it an account": (
            "penstock auth operator config acme",
            "penstock auth account push orders",
        ),
        "Say what a user may do, for how long; end it": (
            "penstock auth user add web orders --pub-allow 'orders.>' --sub-deny '>' --expire 30d",
            "penstock auth user credential new.creds billing orders",
            "penstock auth user rm web orders --revoke",
        ),
        "Look at them": (
            "penstock auth operator ls",
            "penstock auth account info orders",
            "penstock auth user ls orders",
        ),
        "Share a subject between accounts": (
            "penstock auth account exports add prices 'prices.>' orders",
            "penstock auth account imports add prices 'prices.>' shop --source orders",
        ),
        "Make a key": (
            "penstock auth nkey gen user --output user.nk",
            "penstock auth nkey show user.nk",
        ),
    },
    "audit": {
        "Gather what all servers say, and check it": (
            "penstock audit gather --output audit.zip",
            "penstock audit analyze audit.zip",
            "penstock audit checks",
        ),
    },
    "service": {
        "Who offers what": (
            "penstock service ls",
            "penstock service stats orders",
            "penstock service ping",
        ),
        "Call an endpoint, offer one": (
            "penstock service request orders.price coffee",
            "penstock service serve orders --command 'cat prices'",
        ),
        "Show one": ("penstock service info orders",),
    },
    "counter": {
        "Count in a stream that allows it": (
            "penstock stream add COUNTS --subjects 'count.>' --allow-counter --defaults",
            "penstock counter increment count.visits 5",
            "penstock counter get count.visits",
        ),
        "Look at counters, count down": (
            "penstock counter ls COUNTS",
            "penstock counter view count.visits",
            "penstock counter decrement count.visits 2",
        ),
    },
    "backup": {
        "Back up a stream into a folder, and restore it": (
            "penstock stream backup ORDERS backups/orders",
            "penstock stream restore backups/orders",
        ),
        "Back up a store folder again and again, only what is new": (
            "penstock store backup /var/lib/penstock backups",
            "penstock store backups backups",
        ),
        "Check a store folder, repair it, look into it, without a server": (
            "penstock store ls /var/lib/penstock",
            "penstock store check /var/lib/penstock",
            "penstock store verify /var/lib/penstock",
            "penstock store repair /var/lib/penstock --dry-run",
            "penstock store dump /var/lib/penstock ORDERS --count 10",
            "penstock store restore backups /var/lib/restored",
            "penstock store prune backups --keep 30",
        ),
    },
    "apply": {
        "Declare streams and buckets in files": (
            "penstock plan streams/",
            "penstock apply streams/",
            "penstock drift streams/",
        ),
        "Begin with what a server has": ("penstock export --format yaml",),
        "Check files without a server; keep a server as they say": (
            "penstock validate streams/",
            "penstock diff streams/",
            "penstock apply streams/ --watch",
        ),
    },
    "sql": {
        "Ask a stream, follow it": (
            "penstock sql 'select subject, count(*) from ORDERS group by 1'",
            "penstock sql 'select * from ORDERS' --follow",
        ),
        "JSON payloads as columns; rows into a stream": (
            "penstock sql 'select sum(price) from ORDERS' --json-columns ORDERS",
            "penstock sql 'select item, count(*) n from ORDERS group by 1' --to 'report.{item}'",
        ),
    },
    "errors": {
        "What an error means": (
            "penstock errors lookup 10059",
            "penstock errors ls consumer",
        ),
        "Check messages against their schemas": (
            "penstock schema search stream",
            "penstock schema info stream_configuration --yaml",
            "penstock schema validate stream_configuration orders.json",
            "penstock schema request '$JS.API.INFO'",
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
