"""The command tree of the ``nats`` tool of 2026: its commands, their other names, their options."""

from __future__ import annotations

from tests.cli.nats_server_commands import OPTIONS as OF_SERVERS

STREAM_CONFIG = """
    --subjects --description --storage --compression --replicas --tag --cluster --ack --no-ack --retention --discard
    --discard-per-subject --max-age --max-bytes --max-consumers --max-msg-size --max-msgs
    --max-msgs-per-subject --dupe-window --mirror --source --allow-batch --allow-counter
    --allow-rollup --deny-delete --deny-purge --allow-direct --allow-mirror-direct --allow-msg-ttl --allow-schedules
    --subject-del-markers-ttl --transform-source --transform-destination --metadata
    --republish-source --republish-destination --republish-headers --limit-consumer-inactive
    --limit-consumer-max-pending --persist-mode --json
"""
CONSUMER_CONFIG = """
    --ack --bps --backoff --backoff-steps --backoff-min --backoff-max --deliver --deliver-group --filter
    --flow-control --heartbeat --headers-only --max-deliver --max-pending --max-waiting --max-pull-batch
    --max-pull-expire --max-pull-bytes --pull --replay --sample --target --wait --inactive-threshold --memory
    --replicas --metadata
"""
BENCH = "--clients --msgs --size --csv --no-progress --progress"
BENCH_PUB = "--multisubject --multisubjectmax --multisubjectrandomize --payload --header -H"
BENCH_RATE = "--throughput --duration --sleep"
BENCH_STORE = """
    --create --storage --replicas --maxbytes --dedup --dedupwindow --purge --persistasync --stream
"""

# A command -> its options, as they are written there.
OPTIONS: dict[str, str] = {
    **OF_SERVERS,
    "": """
        -s --server --user --password --token --creds --nkey --jwt --seed --tlscert --tlskey --tlsca --tlsfirst
        --tls-first --socks-proxy --timeout --js-api-prefix --js-event-prefix --trace --colors --js-domain
        --inbox-prefix --context --no-context --connection-name
    """,
    "stream add": f"{STREAM_CONFIG} --first-sequence --allow-fast --config --validate --output --defaults",
    "stream edit": f"{STREAM_CONFIG} --config -f --force -i --interactive --no-interactive --dry-run --no-mirror",
    "stream copy": STREAM_CONFIG,
    "stream ls": "--subject --names -n --json -j --all -a",
    "stream report": """
        --subject --cluster --consumers -o --messages -m --name -n --storage -t --raw -r --dot --leaders -l -j
    """,
    "stream find": """
        --empty --idle --created --consumers --subject --replicas --sourced --mirrored --leader --invert
        --api-level --names -n --expression --server-name --cluster --no-invert
    """,
    "stream info": "--json -j --state --no-select",
    "stream state": "--json",
    "stream subjects": "--sort --reverse -R --names --no-names --json -j",
    "stream rm": "--force -f",
    "stream purge": "--subject --seq --keep --force -f --json -j",
    "stream rmm": "--force -f",
    "stream view": "--id --since --subject --raw --translate",
    "stream get": "--last-for -S --json -j --translate",
    "stream backup": "--consumers --no-consumers --check --progress --no-progress --chunk-size --window-size",
    "stream restore": "--config --cluster --tag --replicas --progress --no-progress",
    "stream seal": "--force -f",
    "stream gaps": "--json -j",
    "stream graph": "",
    "stream cluster step-down": "--preferred --force -f",
    "stream cluster balance": """
        --server-name --cluster --empty --idle --created --consumers --subject --replicas --sourced --mirrored
        --leader --invert --no-invert --expression
    """,
    "consumer cluster balance": """
        --pull --push --bound --waiting --ack-pending --pending --idle --created --replicas --leader --pinned
        --invert --no-invert --expression
    """,
    "stream cluster peer-remove": "--force -f",
    "consumer add": f"{CONSUMER_CONFIG} --ephemeral --pause --config --validate --output --defaults --json",
    "consumer edit": "--config --force -f --interactive --no-interactive -i --dry-run",
    "consumer copy": "",
    "consumer ls": "--names -n --json",
    "consumer find": """
        --pull --push --bound --waiting --ack-pending --pending --idle --created --replicas --leader --pinned
        --invert --no-invert --expression --api-level
    """,
    "consumer info": "--json -j",
    "consumer state": "--json",
    "consumer rm": "--force -f",
    "consumer reset": "--sequence",
    "consumer next": "--ack --no-ack --nak --term --raw -r --wait --count",
    "consumer sub": "--raw",
    "consumer graph": "",
    "consumer pause": "",
    "consumer resume": "",
    "consumer unpin": "",
    "consumer report": "--raw -r --leaders -l",
    "consumer cluster step-down": "--preferred --force -f",
    "kv add": """
        --history --storage --ttl --marker-ttl --replicas --max-value-size --max-bucket-size --tags --cluster
        --compress --metadata --republish-source --republish-destination --republish-headers --mirror
        --mirror-domain --source
    """,
    "kv edit": """
        --no-mirror
        --history --ttl --replicas --max-value-size --max-bucket-size --metadata --mirror --mirror-domain --source
    """,
    "kv put": "",
    "kv get": "--revision --raw",
    "kv create": "--ttl",
    "kv update": "",
    "kv del": "--force -f",
    "kv purge": "--force -f --ttl",
    "kv history": "",
    "kv revert": "--no-force",
    "kv info": "",
    "kv watch": "--history --deletes --updates --revision",
    "kv ls": "--names -n --verbose -v --display-value",
    "kv compact": "--force -f",
    "object add": "--ttl --replicas --max-bucket-size --description --storage --tags --cluster --metadata --compress",
    "object edit": "",
    "object put": "--name --description --header -H --chunk-size --progress --force -f",
    "object get": "--output -O --progress --force -f",
    "object del": "--force -f",
    "object info": "",
    "object ls": "--names -n",
    "object seal": "--force -f",
    "object watch": "",
    "pub": """
        --reply --header -H --count --sleep --jetstream -J --atomic --quiet -q --force-stdin --send-on --templates
        --schedule-after --schedule-at --schedule-cron --schedule-every --schedule-dest --schedule-source
        --schedule-ttl
    """,
    "sub": """
        --queue --durable --raw -r --translate --ack --no-ack --match-replies --inbox -i --count --dump --headers-only
        --subjects-only --start-sequence --all --new --last --since --last-per-subject --terminate-at-end -T
        --stream -I --ignore-subject --wait --report-subjects --report-subscriptions --report-top --timestamp -t
        --delta-time -d --graph --direct
    """,
    "request": "--raw -r --header -H --count --replies --reply-timeout --wait-for-empty --translate",
    "reply": "--echo --command --queue -q --sleep --count",
    "bench pub": f"{BENCH} {BENCH_PUB} {BENCH_RATE}",
    "bench sub": f"{BENCH} --multisubject",
    "bench service serve": f"{BENCH} --sleep",
    "bench service request": f"{BENCH} --sleep --payload -H --header --throughput --duration",
    "bench js pub sync": f"{BENCH} {BENCH_PUB} {BENCH_RATE} {BENCH_STORE}",
    "bench js pub async": f"{BENCH} {BENCH_PUB} {BENCH_RATE} {BENCH_STORE} --batch",
    "bench js pub atomic": f"{BENCH} {BENCH_PUB} {BENCH_RATE} {BENCH_STORE} --batch",
    "bench js pub batch": f"{BENCH} {BENCH_PUB} {BENCH_RATE} {BENCH_STORE} --batch",
    "bench js pub fast": f"{BENCH} {BENCH_PUB} {BENCH_RATE} {BENCH_STORE} --batch --max-outstanding-acks",
    "bench js ordered": f"{BENCH} --stream --sleep --batch --purge --filter",
    "bench js consume": f"{BENCH} --stream --sleep --batch --purge --filter --consumer --acks --doubleack "
    "--no-doubleack",
    "bench js fetch": f"{BENCH} --stream --sleep --batch --purge --filter --consumer --acks --doubleack "
    "--no-doubleack",
    "bench js get sync": f"{BENCH} --stream --sleep",
    "bench js get batch": f"{BENCH} --stream --sleep --batch --filter",
    "bench kv put": f"""
        {BENCH} --bucket --sleep --storage --replicas --maxbytes --history --purge --randomize --throughput --duration
    """,
    "bench kv get": f"{BENCH} --bucket --sleep --randomize",
    "context add": "--description --select --embed",
    "context copy": "--description --select --embed",
    "context edit": "",
    "context ls": "--json -j --names",
    "context rm": "--force -f",
    "context select": "",
    "context unselect": "",
    "context info": "--connect --json -j",
    "context validate": "--connect",
    "context previous": "",
    "events": """
        --all -a --json -j --cloudevent --short --filter --js-metric --js-advisory --srv-advisory --subjects --stream
        --since
    """,
    "latency": "--server-b --size --rate --duration --histogram",
    "top": "--conns -n --interval -d --sort --raw -b --max-refresh -r --subs --lookup --output -o --delimiter",
    "rtt": "",
    "trace": "--deliver --timestamp -T --header -H",
    "traffic": "",
    "counter get": "",
    "counter view": "",
    "counter increment": "",
    "counter decrement": "",
    "counter ls": "",
    "service list": "",
    "service info": "--endpoint -e",
    "service stats": "",
    "service ping": "",
    "service request": "--header -H --raw -r --count --translate --force-stdin --send-on --templates",
    "service serve": "",
    "cheat": "",
}

# Commands of the nats tool that are not here -> what the error message names.
ABSENT: dict[str, str] = {
    "plugins": "pelton.sync",
    "bench oldjs": "bench js",
    "governor": "kv create",
    "streem": "did you mean 'stream'?",
    "stream infoo": "did you mean 'info'?",
    "bench js pub asynch": "did you mean 'async'?",
    "serverr": "did you mean 'server'?",
    "server lst": "did you mean 'ls'?",
}
