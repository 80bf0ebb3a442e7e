"""Values for every field of a stream's and a consumer's configuration: usual ones, the edges of
what is allowed, and what is not.

`STREAM` and `CONSUMER` are lists of (field, value): each alone, and drawn together, they are what
both servers are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 1_000_000
SECOND = 1000 * MS
LIMIT = 1 << 17  # bytes of metadata

ORIGIN = {"name": "ORIGIN"}
FIELDS: dict[str, list[Any]] = {
    "description": ["words & <more>", "x" * 4096, "x" * 4097],
    "subjects": [
        ["v.>"],
        ["v.*", "v.a.b"],
        ["v.a", "v.a"],
        ["v.a", "v.*"],
        ["v.*", "v.a"],
        ["*.a", "a.*"],
        [""],
        ["v a"],
        ["v..a"],
        ["v.", "w"],
        [".v"],
        ["v.>.a"],
        ["v*", "v>"],
        [">"],
        ["*"],
        ["*.>"],
        ["$JS.>"],
        ["$JS.EVENT.>"],
        ["$JS.EVENT.ADVISORY.API"],
        ["$JS.API.INFO"],
        ["$JSC.x"],
        ["$NRG.x"],
        ["$SYS.>"],
        ["$SYS.ACCOUNT.>"],
        ["$SYS.ACCOUNT.x.CONNECT"],
        ["*.x"],
        ["taken.>"],
        ["taken.x", "v"],
        ["é.>"],
        [],
        None,
    ],
    "retention": ["limits", "interest", "workqueue", "x", 1],
    "max_consumers": [-2, -1, 0, 1],
    "max_msgs": [-2, -1, 0, 1, 10],
    "max_bytes": [-2, -1, 0, 1, 10_000],
    "max_age": [-1, 0, 1, 100 * MS - 1, 100 * MS, SECOND, 3600 * SECOND],
    "max_msgs_per_subject": [-2, -1, 0, 1, 5],
    "max_msg_size": [-2, -1, 0, 1, 1000, 1 << 31],
    "discard": ["old", "new", "x"],
    "storage": ["file", "memory", "x"],
    "num_replicas": [-1, 0, 1, 2, 5, 6],
    "no_ack": [True, False],
    "duplicate_window": [-1, 0, 1, 100 * MS - 1, 100 * MS, SECOND, 7200 * SECOND],
    "placement": [
        None,
        {},
        {"cluster": "c"},
        {"tags": ["a"]},
        {"preferred": "x"},
        {"cluster": "", "tags": []},
    ],
    "mirror": [
        ORIGIN,
        {"name": "NOWHERE"},
        {"name": ""},
        {"name": "a.b"},
        {"name": "V"},
        {"name": "ORIGIN", "opt_start_seq": 5},
        {"name": "ORIGIN", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"name": "ORIGIN", "opt_start_seq": 5, "opt_start_time": "2020-01-01T00:00:00Z"},
        {"name": "ORIGIN", "filter_subject": "origin.a"},
        {"name": "ORIGIN", "filter_subject": "a b"},
        {"name": "ORIGIN", "filter_subject": "elsewhere"},
        {"name": "ORIGIN", "subject_transforms": [{"src": "origin.*", "dest": "o.$1"}]},
        {"name": "ORIGIN", "subject_transforms": [{"src": "origin.*", "dest": "o.$2"}]},
        {"name": "ORIGIN", "subject_transforms": [{"src": "a b", "dest": "o"}]},
        {"name": "ORIGIN", "subject_transforms": [{"src": "origin.*", "dest": "o.>"}]},
        {
            "name": "ORIGIN",
            "subject_transforms": [
                {"src": "origin.*", "dest": ""},
                {"src": "origin.a", "dest": ""},
            ],
        },
        {
            "name": "ORIGIN",
            "filter_subject": "origin.a",
            "subject_transforms": [{"src": "origin.*", "dest": "o.$1"}],
        },
        {"name": "ORIGIN", "external": {"api": "$JS.x.API", "deliver": "d"}},
        {"name": "ORIGIN", "external": {"api": "$JS.API", "deliver": ""}},
        {"name": "ORIGIN", "external": {"api": "", "deliver": ""}},
        {"name": "ORIGIN", "external": {"api": "$JS.x.API", "deliver": "d.*"}},
        {"name": "ORIGIN", "external": {"api": "a b", "deliver": "d"}},
        {"name": "ORIGIN", "consumer": {"name": "c"}},
        {"name": "ORIGIN", "consumer": {"name": "c", "deliver_subject": "d"}},
        {"name": "ORIGIN", "consumer": {"name": "a.b", "deliver_subject": "d"}},
        {"name": "ORIGIN", "consumer": {"name": "c", "deliver_subject": "d.*"}},
    ],
    "sources": [
        [],
        [ORIGIN],
        [ORIGIN, ORIGIN],
        [ORIGIN, {"name": "ORIGIN", "filter_subject": "origin.a"}],
        [{"name": ""}],
        [{"name": "a.b"}],
        [{"name": "V"}],
        [{"name": "NOWHERE"}],
        [{"name": "ORIGIN", "opt_start_seq": 5, "opt_start_time": "2020-01-01T00:00:00Z"}],
        [{"name": "ORIGIN", "filter_subject": "a b"}],
        [
            {
                "name": "ORIGIN",
                "filter_subject": "a",
                "subject_transforms": [{"src": "a", "dest": "b"}],
            }
        ],
        [{"name": "ORIGIN", "subject_transforms": [{"src": "origin.*", "dest": "o.$1"}]}],
        [{"name": "ORIGIN", "subject_transforms": [{"src": "a b", "dest": "o"}]}],
        [{"name": "ORIGIN", "subject_transforms": [{"src": "a.*", "dest": "o.$3"}]}],
        [
            {
                "name": "ORIGIN",
                "subject_transforms": [{"src": "a.*", "dest": ""}, {"src": "a.b", "dest": ""}],
            }
        ],
        [{"name": "ORIGIN", "external": {"api": "$JS.x.API", "deliver": "d"}}],
        [{"name": "ORIGIN", "external": {"api": "$JS.API", "deliver": ""}}],
        [{"name": "ORIGIN", "external": {"api": "$JS.x.API", "deliver": "d.*"}}],
        [{"name": "ORIGIN", "external": {"api": "a b", "deliver": ""}}],
        [{"name": "ORIGIN", "consumer": {"name": "c", "deliver_subject": "d"}}],
        [{"name": "ORIGIN", "consumer": {"name": "c"}}],
    ],
    "compression": ["none", "s2", "x"],
    "first_seq": [0, 1, 1000, 1 << 62, 1 << 63, (1 << 64) - 1],
    "subject_transform": [
        {},
        {"src": "v.*", "dest": "t.$1"},
        {"src": "v.*", "dest": "t.{{wildcard(1)}}"},
        {"src": "v.>", "dest": "t.>"},
        {"src": "", "dest": "t.>"},
        {"src": "", "dest": "t"},
        {"src": "v.*", "dest": ""},
        {"src": "v.*", "dest": "t"},
        {"src": "v.*", "dest": "t.*"},
        {"src": "v.*", "dest": "t.$2"},
        {"src": "v.>", "dest": "t"},
        {"src": "v", "dest": "t.>"},
        {"src": "v..", "dest": "t"},
        {"src": "v.*", "dest": "t..a"},
        {"src": "v.*", "dest": "t.{{partition(3,1)}}"},
        {"src": "v.*", "dest": "t.{{partition(x)}}"},
        {"src": "v.*", "dest": "t.{{partition()}}"},
        {"src": "v.*", "dest": "t.{{partition(3,2)}}"},
        {"src": "v.*", "dest": "t.{{nothing(1)}}"},
        {"src": "v.*", "dest": "t.{{wildcard(1,2)}}"},
        {"src": "v.*", "dest": "t.{{wildcard()}}"},
        {"src": "v.*", "dest": "t.{{split(1,-)}}"},
        {"src": "v.*", "dest": "t.{{split(1)}}"},
        {"src": "v.*", "dest": "t.{{splitfromleft(1,2)}}"},
        {"src": "v.*", "dest": "t.{{SliceFromRight(1,2)}}"},
        {"src": "v.*", "dest": "t.{{slicefromleft(1)}}"},
        {"src": "v.*", "dest": "t.{{left(1,2)}}"},
        {"src": "v.*", "dest": "t.{{random(3)}}"},
        {"src": "v.*", "dest": "t.{{wildcard(1}}"},
    ],
    "republish": [
        {"src": "v.>", "dest": "r.>"},
        {"src": "", "dest": "r.>"},
        {"src": ">", "dest": "r.>"},
        {"src": ">", "dest": ">"},
        {"src": "v.*", "dest": "r.$1", "headers_only": True},
        {"src": "v.*", "dest": "r.$2"},
        {"src": "v.*", "dest": "r"},
        {"src": "v.>", "dest": "v.x"},
        {"src": "v.a", "dest": "V"},
        {"src": "a b", "dest": "r"},
        {"src": "v.>", "dest": ""},
        {"src": "v.>", "dest": "r.*"},
        {"dest": "taken.x"},
    ],
    "allow_direct": [True, False],
    "mirror_direct": [True, False],
    "discard_new_per_subject": [True],
    "sealed": [True],
    "deny_delete": [True, False],
    "deny_purge": [True, False],
    "allow_rollup_hdrs": [True, False],
    "consumer_limits": [
        {},
        {"inactive_threshold": SECOND},
        {"max_ack_pending": 3},
        {"inactive_threshold": -1},
        {"max_ack_pending": -1},
        None,
    ],
    "allow_msg_ttl": [True, False],
    "subject_delete_marker_ttl": [-1, 0, 1, SECOND - 1, SECOND, 60 * SECOND],
    "allow_msg_counter": [True, False],
    "allow_atomic": [True, False],
    "allow_msg_schedules": [True, False],
    "persist_mode": ["default", "async", "x", ""],
    "allow_batched": [True, False],
    "metadata": [
        {},
        None,
        {"a": "b"},
        {"_nats.ver": "1", "_nats.level": "9", "_nats.req.level": "9"},
        {"_nats.other": "x"},
        {"a": "x" * (LIMIT - 1)},
        {"a": "x" * LIMIT},
        {"a": 1},
    ],
}
STREAM = [(field, value) for field, values in FIELDS.items() for value in values]

CONSUMER_FIELDS: dict[str, list[Any]] = {
    "durable_name": ["c", "other", "a.b", "a b", "x" * 256],
    "name": ["c", "other", "a*", ""],
    "description": ["words", "x" * 4096, "x" * 4097],
    "deliver_policy": [
        "all",
        "last",
        "new",
        "by_start_sequence",
        "by_start_time",
        "last_per_subject",
        "x",
        "undefined",
    ],
    "opt_start_seq": [0, 1, 5, 1000],
    "opt_start_time": ["2020-01-01T00:00:00Z", "2100-01-01T00:00:00.5+02:00", "x", None],
    "ack_policy": ["none", "all", "explicit", "flow_control", "x"],
    "ack_wait": [-1, 0, 1, SECOND, 60 * SECOND],
    "max_deliver": [-2, -1, 0, 1, 3],
    "backoff": [[], None, [SECOND], [SECOND, 2 * SECOND], [0], [-1], [SECOND, -1], [SECOND] * 5],
    "filter_subject": ["s.1", "s.*", ">", "elsewhere", "a b", "s..1", ""],
    "filter_subjects": [
        [],
        None,
        ["s.1"],
        ["s.1", "s.2"],
        ["s.1", "s.1"],
        ["s.1", "s.*"],
        ["*.1", "s.*"],
        [""],
        ["a b"],
        [">"],
        ["s.1", ""],
    ],
    "replay_policy": ["instant", "original", "x"],
    "rate_limit_bps": [0, 1, 100_000],
    "sample_freq": ["100", "100%", "0", "30", "%", "x", "-1", "200", " 5", "5%%", "+5", "1.5"],
    "max_waiting": [-1, 0, 1, 2000],
    "max_ack_pending": [-2, -1, 0, 1, 1000, 5000],
    "flow_control": [True, False],
    "headers_only": [True, False],
    "max_batch": [-1, 0, 1, 100],
    "max_expires": [-1, 0, 1, MS - 1, MS, SECOND],
    "max_bytes": [-1, 0, 1, 1000],
    "deliver_subject": ["d", "d.*", "d.>", "a b", "s.1", "d..x", "s.>", "$JS.API.x"],
    "deliver_group": ["g", "a b", "a.b"],
    "idle_heartbeat": [-1, 0, 1, 100 * MS - 1, 100 * MS, SECOND, 30 * SECOND],
    "inactive_threshold": [-1, 0, 1, SECOND, 60 * SECOND],
    "num_replicas": [-1, 0, 1, 2, 5],
    "mem_storage": [True, False],
    "direct": [True, False],
    "sourcing": [True, False],
    "metadata": [
        {},
        {"a": "b"},
        {"_nats.ver": "1", "_nats.req.level": "9"},
        {"a": "x" * LIMIT},
    ],
    "pause_until": ["2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z", None, "x"],
    "priority_groups": [[], ["g"], ["g", "h"], [""], ["a b"], ["x" * 17], ["A/b_=-9"], ["g", "g"]],
    "priority_policy": ["none", "overflow", "pinned_client", "prioritized", "x"],
    "priority_timeout": [-1, 0, SECOND],
}
CONSUMER = [(field, value) for field, values in CONSUMER_FIELDS.items() for value in values]


def drawn(pairs: Sequence[tuple[str, Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """So many of the (field, value) pairs at most, as one configuration; every field as likely as
    another.
    """
    fields: dict[str, list[Any]] = {}
    for field, value in pairs:
        fields.setdefault(field, []).append(value)
    pair = st.sampled_from(sorted(fields)).flatmap(
        lambda field: st.tuples(st.just(field), st.sampled_from(fields[field]))
    )
    return st.lists(pair, min_size=1, max_size=most).map(dict)
