"""The commands of the ``nats`` tool of 2026 about servers, accounts, keys, schemas, audits, with their options."""

from __future__ import annotations

OPTIONS: dict[str, str] = {
    "account backup": "--check --consumers --force -f --critical-warnings -w",
    "account info": "",
    "account report connections": """
        --sort --top --subject --username --reverse -R --state --closed-reason
    """,
    "account report statistics": "",
    "account restore": "--cluster --tag",
    "account tls": "--expire-warn --ocsp --pem",
    "audit analyze": """
        --max-examples --skip --load --save --force -f --json -j --markdown --verbose
    """,
    "audit checks": "--json",
    "audit gather": """
        --output -o --progress --cluster --server-endpoints --server-profiles --account-endpoints --streams
        --consumers --details
    """,
    "auth account add": """
        --operator --key --defaults --bearer --connections --expiry --exports --imports --jetstream
        --js-consumers --js-disk --js-disk-stream --js-max-pending --js-memory --js-memory-stream
        --js-stream-size-required --js-streams --js-cluster-traffic --leafnodes --payload --subscriptions
        --tags
    """,
    "auth account edit": """
        --operator --bearer --connections --expiry --exports --imports --jetstream --js-consumers --js-disk
        --js-disk-stream --js-max-pending --js-memory --js-memory-stream --js-stream-size-required
        --js-streams --js-cluster-traffic --leafnodes --payload --subscriptions --tags --no-tags
    """,
    "auth account exports add": """
        --operator --description --url --token-position --advertise --service
    """,
    "auth account exports edit": "--operator --description --url --token-position --advertise",
    "auth account exports info": "--operator --json -j",
    "auth account exports ls": "--operator",
    "auth account exports rm": "--operator --force -f",
    "auth account imports add": "--source --local --share --traceable --service --operator",
    "auth account imports edit": "--local --share --traceable --operator",
    "auth account imports info": "--operator --json -j",
    "auth account imports ls": "",
    "auth account imports rm": "--operator --force -f",
    "auth account info": "--operator --json -j",
    "auth account keys add": """
        --operator --description --subscriptions --payload --bearer --locale --connection --pub-allow
        --pub-deny --sub-allow --sub-deny
    """,
    "auth account keys info": "--operator --json -j",
    "auth account keys ls": "--operator",
    "auth account keys rm": "--key --operator --force -f",
    "auth account ls": "--names",
    "auth account mappings add": "--operator --config",
    "auth account mappings info": "--operator --json -j",
    "auth account mappings ls": "--operator",
    "auth account mappings rm": "--operator",
    "auth account push": "--operator --show",
    "auth account query": "--operator",
    "auth nkey gen": "--public --entropy --output",
    "auth nkey seal": "--output --b64",
    "auth nkey show": "",
    "auth nkey sign": "",
    "auth nkey unseal": "--output --b64",
    "auth nkey verify": "",
    "auth operator add": "--service --account-server --signing-key --tags",
    "auth operator backup": "--key",
    "auth operator edit": "--account-server --service --tags --no-tags",
    "auth operator import": "",
    "auth operator info": "--json -j",
    "auth operator keys add": "",
    "auth operator keys list": "",
    "auth operator keys rm": "--force -f",
    "auth operator list": "--names",
    "auth operator restore": "--key",
    "auth operator select": "",
    "auth user add": """
        --key --operator --force -f --credential --defaults --bearer --data --locale --payload --pub-allow
        --pub-deny --sub-allow --sub-deny --subscriptions --tags
    """,
    "auth user credential": "--expire --operator --force -f",
    "auth user edit": """
        --operator --credential --bearer --data --locale --payload --pub-allow --pub-deny --sub-allow
        --sub-deny --subscriptions --tags --no-tags
    """,
    "auth user info": "--operator --json -j",
    "auth user ls": "--operator --names",
    "auth user rm": "--operator --revoke --force -f",
    "errors edit": "--errors",
    "errors lookup": "--errors",
    "errors ls": "--reverse --no-reverse -R --errors",
    "errors validate": "--errors",
    "schema info": "--yaml",
    "schema request": "--schema --show",
    "schema search": "--json",
    "schema validate": "--json",
    "server account info": "--host --archive",
    "server account purge": "--force -f",
    "server check connection": """
        --connect-warn --connect-critical --rtt-warn --rtt-critical --req-warn --req-critical --format
        --namespace --outfile
    """,
    "server check consumer": """
        --stream --consumer --outstanding-ack-critical --waiting-critical --unprocessed-critical
        --last-delivery-critical --last-ack-critical --redelivery-critical --pinned --format --namespace
        --outfile
    """,
    "server check credential": """
        --credential --validity-warn --validity-critical --require-expiry --format --namespace --outfile
    """,
    "server check jetstream": """
        --mem-warn --mem-critical --store-warn --store-critical --streams-warn --streams-critical
        --consumers-warn --consumers-critical --replicas --replica-seen-critical --replica-lag-critical
        --format --namespace --outfile
    """,
    "server check kv": """
        --bucket --values-critical --values-warn --key --format --namespace --outfile
    """,
    "server check message": """
        --stream --subject --age-warn --age-critical --content --body-timestamp --format --namespace
        --outfile
    """,
    "server check meta": "--expect --lag-critical --seen-critical --format --namespace --outfile",
    "server check request": """
        --subject --payload --headers --match-payload --match-headers --response-critical --response-warn
        --format --namespace --outfile
    """,
    "server check server": """
        --name --cpu-warn --cpu-critical --mem-warn --mem-critical --conn-warn --conn-critical --subs-warn
        --subs-critical --uptime-warn --uptime-critical --auth-required --tls-required --js-required
        --tls-cert-warn --tls-cert-crit --format --namespace --outfile
    """,
    "server check stream": """
        --stream --lag-critical --seen-critical --min-sources --max-sources --peer-expect
        --peer-lag-critical --peer-seen-critical --msgs-warn --msgs-critical --subjects-warn
        --subjects-critical --format --namespace --outfile
    """,
    "server cluster balance": """
        --server-name --cluster --idle --account --subject --kind --force -f
    """,
    "server cluster peer-remove": "--force -f --json -j",
    "server cluster step-down": "--cluster --tags --host --json -j --force -f",
    "server config reload": "--force --no-force -f",
    "server generate": "",
    "server graph": "--jetstream -j",
    "server info": "--archive",
    "server list": "--json -j --sort --reverse -R --compact --archive",
    "server mappings": "",
    "server passwd": "--pass -p --cost -c --generate -g",
    "server ping": "--graph --id",
    "server report accounts": """
        --sort --top --archive --json -j --host --cluster --tags --watch --reverse
    """,
    "server report connections": """
        --account --sort --top --subject --username --state --closed-reason --filter --archive --json -j --host
        --cluster --tags --watch --reverse
    """,
    "server report cpu": "--reverse -R --archive --json -j --host --cluster --tags --watch",
    "server report downgrade": "--reverse -R --json --all --archive",
    "server report gateways": """
        --filter-name --sort --archive --host --cluster --tags --watch --reverse
    """,
    "server report health": """
        --reverse -R --no-js-enabled --no-server-only
        --js-enabled -J --server-only -S --account --stream --consumer --archive --host --cluster --tags
        --watch
    """,
    "server report jetstream": """
        --account --sort --compact --leaders -l --archive --host --cluster --tags --watch --reverse
    """,
    "server report leafnodes": """
        --account --sort --archive --host --cluster --tags --watch --reverse
    """,
    "server report mem": "--reverse -R --archive --json -j --host --cluster --tags --watch",
    "server report routes": "--sort --archive --host --cluster --tags --watch --reverse",
    "server request accounts": """
        --account --archive --limit --offset --name --host --cluster --tags
    """,
    "server request connections": """
        --sort --subscriptions --filter-cid --filter-state --filter-user --filter-account --filter-subject
        --filter-empty --archive --limit --offset --name --host --cluster --tags
    """,
    "server request gateways": """
        --filter-account --accounts --subscriptions --archive --limit --offset --name --host --cluster
        --tags
    """,
    "server request ipqueue": """
        --all --filter --archive --limit --offset --name --host --cluster --tags
    """,
    "server request jetstream": """
        --account --accounts --streams --consumer --config --raft --leader --stream-leader --all --archive
        --limit --offset --name --host --cluster --tags
    """,
    "server request jetstream-health": """
        --js-enabled -J --server-only -S --account --stream --consumer --details --archive --limit --offset
        --no-js-enabled --no-server-only --name --host --cluster --tags
    """,
    "server request kick": "--limit --offset --name --host --cluster --tags",
    "server request leafnodes": """
        --subscriptions --archive --limit --offset --name --host --cluster --tags
    """,
    "server request profile": "--level --archive --limit --offset --name --host --cluster --tags",
    "server request raft": """
        --account --group --archive --limit --offset --name --host --cluster --tags
    """,
    "server request routes": """
        --subscriptions --archive --limit --offset --name --host --cluster --tags
    """,
    "server request subscriptions": """
        --detail --filter-account --filter-subject --archive --limit --offset --name --host --cluster --tags
    """,
    "server request variables": "--archive --limit --offset --name --host --cluster --tags",
    "server watch": "",
    "server watch api": "",
    "server watch api requests": """
        --account --top -n --rate --record-consumer --no-record-consumer --compact --no-compact --reverse -R
    """,
    "server check exporter": "--outfile --config --port --https-key --https-certificate",
    "server stream-check": """
        --stream --raft-group --health --expected --unsynced --stdin --read-timeout --csv --archive
    """,
    "server consumer-check": """
        --stream --consumer --raft-group --health --expected --unsynced --stdin --read-timeout --csv --archive
    """,
    "server watch accounts": "--sort --number -n",
    "server watch jetstream": "--sort --number -n",
    "server watch servers": "--sort --number -n",
}
