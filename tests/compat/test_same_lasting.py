"""Rollups, TTLs, markers, transforms, republish, counters and schedules beside a real nats-server:
same bytes to both, same bytes back.
"""

import time

import pytest

from pelton.api.times import format_time
from tests.compat.scene import NEEDS_BOTH, Scene, second
from tests.ways import FULL

pytestmark = NEEDS_BOTH


def put(scene, subject, body="x", headers=None):
    """Publish below the stream's subject and compare the PubAcks."""
    scene.client.publish(f"{scene.name}.{subject}", body, headers, reply="in.ack")


def state(scene):
    """The stream's info, and every message it holds."""
    info = scene.client.ask(
        f"STREAM.INFO.{scene.name}", {"subjects_filter": ">", "deleted_details": True}
    )
    for seq in range(max(info["state"]["first_seq"], 1), info["state"]["last_seq"] + 1):
        scene.client.ask(f"STREAM.MSG.GET.{scene.name}", {"seq": seq})


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_rollups(client, storage):
    scene = Scene(client, storage=storage, allow_rollup_hdrs=True)
    scene.consumer()
    for subject in ("a", "b", "a", "c", "a"):
        put(scene, subject)
    for how in ("sub", "SUB", "Sub ", "x", 'q"\x01\\é', ""):
        put(scene, "a", headers=f"Nats-Rollup: {how}")
        state(scene)
        scene.info()
    put(scene, "c", headers="Nats-Rollup: all\nNats-Expected-Last-Sequence: 99")
    put(scene, "c", headers="Nats-Msg-Id: 1\nNats-Rollup: all")
    put(scene, "c", headers="Nats-Msg-Id: 1\nNats-Rollup: nothing")
    state(scene)
    scene.info()
    put(scene, "d")
    put(scene, "d", headers="nats-rollup: all")
    state(scene)


def test_rollups_that_are_not_allowed(client):
    scene = Scene(client)
    for how in ("sub", "all", "x", ""):
        put(scene, "a", headers=f"Nats-Rollup: {how}")
    state(scene)


def test_rollups_and_discard_new(client):
    scene = Scene(
        client,
        allow_rollup_hdrs=True,
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=2,
        max_msgs=5,
    )
    for subject in ("a", "a", "a", "b", "b", "b", "c", "c"):
        put(scene, subject)
    for how in ("sub", "x", ""):
        put(scene, "a", headers=f"Nats-Rollup: {how}")
        put(scene, "d", headers=f"Nats-Rollup: {how}")
        state(scene)


def test_what_may_not_be_removed(client):
    for config in ({"deny_delete": True}, {"deny_purge": True}, {"allow_rollup_hdrs": True}):
        scene = Scene(client, **config)
        put(scene, "a")
        put(scene, "a")
        put(scene, "a", headers="Nats-Rollup: sub")
        name = scene.name
        base = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
        for more in (
            {},
            {"deny_delete": True},
            {"deny_purge": True},
            {"allow_rollup_hdrs": True},
            {"allow_rollup_hdrs": True, "deny_purge": True},
            {"sealed": True, **config},
            {"sealed": True, "deny_delete": True, "deny_purge": True},
            {"sealed": False},
        ):
            client.ask(f"STREAM.UPDATE.{name}", {**base, **more})
            client.ask(f"STREAM.MSG.DELETE.{name}", {"seq": 100})
            client.ask(f"STREAM.PURGE.{name}", {"keep": 1})
        put(scene, "a")
        put(scene, "a", headers="Nats-Rollup: sub")
        state(scene)


TTLS = ("1", "0", "00", "-1", "1.5s", "2s", "500ms", "never", "Never", "x", "", " 3", "1m", "+2s")


@pytest.mark.parametrize("config", [{}, {"allow_msg_ttl": True}], ids=str)
def test_ttls_that_are_taken(client, config):
    scene = Scene(client, **config)
    for ttl in TTLS:
        put(scene, "a", headers=f"Nats-TTL: {ttl}")
        put(scene, "a", headers=f"Nats-TTL: {ttl}\nNats-Expected-Last-Sequence: 77")
        put(scene, "a", headers=f"Nats-TTL: {ttl}\nNats-Rollup: sub")


@pytest.mark.parametrize("per_subject", [-1, 1])
def test_ttls_are_raised_to_that_of_markers(client, per_subject):
    # nothing ends before it is read, however busy the machine is; one TTL is longer
    scene = Scene(
        client, subject_delete_marker_ttl=40_500_000_000, max_msgs_per_subject=per_subject
    )
    for number, ttl in enumerate(TTLS):
        put(scene, f"a.{number}", headers=f"Nats-TTL: {ttl}\nOther: x")
        put(scene, f"a.{number}", headers=f"First: y\nNats-TTL: {ttl}")
    state(scene)


def test_messages_end_and_leave_markers(client):
    # markers live long enough to be read on a busy machine, and are gone at the second look
    scenes = [
        Scene(client, storage=storage, subject_delete_marker_ttl=second(8))
        for storage in ("file", "memory")
    ]
    plain = [
        Scene(client, storage=storage, allow_msg_ttl=True, max_age=second(1))
        for storage in ("file", "memory")
    ]
    for scene in scenes:
        for number in range(3):
            put(scene, f"a.{number}", headers="Nats-TTL: 1")
        put(scene, "b", headers="Nats-TTL: 1")
        put(scene, "b")
        put(scene, "c", headers="Nats-TTL: 1\nKV-Operation: PURGE")
        put(scene, "d", headers="Nats-TTL: 1\nKV-Operation: DEL")
        put(scene, "e", headers="Nats-TTL: never")
    for scene in plain:
        for number in range(3):
            put(scene, f"a.{number}", headers=f"Nats-TTL: {('1', 'never', '60')[number]}")
            put(scene, f"b.{number}")
    client.wait(2.5)
    for scene in scenes:
        state(scene)
    client.wait(11)
    for scene in (*scenes, *plain):
        state(scene)


def test_age_leaves_markers(client):
    scene = Scene(client, subject_delete_marker_ttl=second(60), max_age=second(1))
    for subject in ("a", "a", "b", "c", "b"):
        put(scene, subject)
    put(scene, "d", headers="Nats-TTL: never")
    client.wait(3.5)
    state(scene)
    name = scene.name
    base = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
    for more in ({}, {"allow_msg_ttl": True}, {"subject_delete_marker_ttl": 5}, {"max_age": 0}):
        client.ask(f"STREAM.UPDATE.{name}", {**base, **more})


FUNCTIONS = ["wildcard", "partition", "splitFromLeft", "SplitFromRight", "sliceFromLeft"]
FUNCTIONS += ["SliceFromRight", "split", "left", "Right", "Random", "nothing"]
ARGUMENTS = ["", "1", "0", "2", "-1", "1,2", "1, 2", "2,1", " 1 ,2", "x", "1,x", "1,2,3", "1,-"]
ARGUMENTS += ["1,", "99999999999", "1,3000000000", "1,a b", "1,a.b", "+1,+2", "3,1"]


def test_transforms_are_judged_alike(client):
    scene = Scene(client)
    name = scene.name
    base = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
    destinations = [
        f"{{{{{function}({arguments})}}}}" for function in FUNCTIONS for arguments in ARGUMENTS
    ]
    destinations += [
        "b",
        "b.>",
        "b.*",
        "b..c",
        "b.>.c",
        "b c",
        "$1",
        "$2",
        "$x",
        "{{x}}",
        "{{}}",
        "",
    ]
    for src in ("a.*", "a", "a.>", "a.*.*", "a..b", "a b", "", ">"):
        for dest in destinations if src == "a.*" else destinations[::7] + destinations[-12:]:
            turn = (src != "a.*") + destinations.index(dest)
            for more in ("", ".>") if FULL else ("", ".>")[turn % 2 :][:1]:
                body = {**base, "subject_transform": {"src": src, "dest": dest + more}}
                client.ask(f"STREAM.UPDATE.{name}", body)


def test_republish_is_judged_alike(client):
    scene = Scene(client)
    name = scene.name
    base = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
    for src in ("", ">", f"{name}.>", f"{name}.*", "a.*", "a..b"):
        # not "": nats-server then publishes to itself without an end
        for dest in (">", "x", "x.>", "x.$1", "x.$2", f"{name}.x", f"*.{name}", "{{left(1,1)}}"):
            for transform in (None, {"src": f"{name}.>", "dest": "t.>"}):
                for pedantic in (False, True):
                    body = {**base, "republish": {"src": src, "dest": dest}}
                    if transform:
                        body["subject_transform"] = transform
                    if pedantic:
                        body["pedantic"] = True
                    client.ask(f"STREAM.UPDATE.{name}", body)


TRANSFORMS = [
    ("N.*", "t.$1"),
    ("N.*", "t.{{partition(7,1)}}.{{partition(5)}}.{{wildcard(1)}}"),
    ("N.*", "{{splitfromLeft(1,2)}}.{{SplitFromRight(1,2)}}"),
    ("N.*", "{{sliceFromLeft(1,2)}}.{{sliceFromRight(1,2)}}"),
    ("N.*", "{{split(1,-)}}.{{split(1,o)}}"),
    ("N.*.>", "t.$1.>"),
    (">", "all.>"),
    ("", "{{partition(3)}}.>"),
    ("N.foo", "{{partition(1000)}}"),
]


@pytest.mark.parametrize(("src", "dest"), TRANSFORMS)
def test_transforms_give_the_same_subjects(client, src, dest):
    scene = Scene(client)
    name = scene.name
    client.say(f"SUB out.{name}.> 7\r\n")
    client.ask(
        f"STREAM.UPDATE.{name}",
        {
            "name": name,
            "subjects": [f"{name}.>"],
            "storage": "file",
            "subject_transform": {"src": src.replace("N", name), "dest": dest},
            "republish": {"dest": f"out.{name}.>"},
        },
    )
    for subject in ("a", "foo", "-a-b--c-", "12345", "né", "foo.bar", "x.y.z", "ooo"):
        put(scene, subject, headers="A: b")
        put(scene, subject, headers="Nats-Expected-Last-Subject-Sequence: 1")
    client.ask(f"STREAM.INFO.{name}", {"subjects_filter": ">"})


@pytest.mark.parametrize("headers_only", [False, True])
def test_what_is_published_again(client, headers_only):
    scene = Scene(client)
    name = scene.name
    client.say(f"SUB r.{name}.> 7\r\n")
    body = {
        "name": name,
        "subjects": [f"{name}.>"],
        "storage": "file",
        "allow_rollup_hdrs": True,
        "republish": {"src": f"{name}.*", "dest": f"r.{name}.$1", "headers_only": headers_only},
    }
    client.ask(f"STREAM.UPDATE.{name}", body)
    for headers in (None, "A: b", "Nats-Msg-Id: 1", "Nats-Msg-Id: 1", "Nats-Rollup: sub"):
        for subject in ("a", "b", "a.b"):
            put(scene, subject, "body", headers)
    put(scene, "a", "", "Nats-Expected-Last-Sequence: 1")
    put(scene, "a", "")
    body["no_ack"] = True
    client.ask(f"STREAM.UPDATE.{name}", body)
    put(scene, "a")


def test_counters(client):
    scene = Scene(client, allow_msg_counter=True, allow_rollup_hdrs=True)
    numbers = ["1", "+5", "-3", "0", "007", "x", "1.5", "1_000", "", " 4", "--1", "+", "9" * 60]
    for number in [*numbers, "-" + "9" * 70, "1" * 4000]:
        put(scene, "a", "", f"Nats-Incr: {number}")
        put(scene, "b", "body", f"Nats-Incr: {number}")
    for more in (
        "Nats-Rollup: sub",
        "Nats-Rollup: x",
        "Nats-Expected-Stream: x",
        "Nats-Expected-Last-Msg-Id: x",
        "Nats-Expected-Last-Sequence: 1",
        "Nats-Expected-Last-Subject-Sequence: 1",
        "Nats-Expected-Last-Subject-Sequence-Subject: x",
        "Nats-Msg-Id: 1",
        "Nats-Msg-Id: 1",
        "Nats-TTL: 1",
        "Nats-Schedule: @at x",
        "Nats-Counter-Sources: {}",
        'Nats-Counter-Sources: {"A":{"s":"5"}}',
        "Nats-Counter-Sources: {]",
        "Other: x",
    ):
        put(scene, "a", "", f"Nats-Incr: 1\n{more}")
        put(scene, "c", "", f"{more}\nNats-Incr: 2")
        put(scene, "d", "", more)
    put(scene, "a", "x")
    state(scene)


def test_counters_on_a_stream_without(client):
    scene = Scene(client)
    for number in ("1", "x", "", "0"):
        put(scene, "a", "", f"Nats-Incr: {number}")
        put(scene, "a", "body", f"Nats-Incr: {number}\nNats-Expected-Last-Sequence: 9")
    put(scene, "a", '{"val":"5"}')
    put(scene, "b", "no number")
    for number, body in enumerate(("null", "{}", '{"val":5}', '{"VAL":"6"}', '{"val":"x"}', "[]")):
        put(scene, f"c.{number}", body)
    name = scene.name
    base = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
    client.ask(f"STREAM.UPDATE.{name}", {**base, "allow_msg_counter": True})


def test_what_counters_can_not_be_with(client):
    for number, more in enumerate(
        (
            {"discard": "new"},
            {"allow_msg_ttl": True},
            {"subject_delete_marker_ttl": second(5)},
            {"allow_msg_schedules": True},
            {"retention": "interest"},
            {"discard": "new", "discard_new_per_subject": True},
            {"mirror": {"name": "X"}},
            {"mirror": {"name": "X"}, "discard": "new"},
            {"max_msg_size": 20},
        )
    ):
        name = f"CNT{number}"
        client.made.append(name)
        subjects = {} if "mirror" in more else {"subjects": [f"cnt{number}.>"]}
        body = {"name": name, **subjects, "allow_msg_counter": True, **more}
        client.ask(f"STREAM.CREATE.{name}", body)
        client.publish(f"cnt{number}.a", "", "Nats-Incr: 10000000000", reply="in.ack")


FEATURES = [
    {"allow_msg_counter": True},
    {"allow_msg_ttl": True},
    {"subject_delete_marker_ttl": 5_000_000_000},
    {"subject_delete_marker_ttl": -1},
    {"subject_delete_marker_ttl": 1},
    {"allow_msg_schedules": True},
    {"allow_rollup_hdrs": True},
    {"deny_purge": True},
    {"deny_delete": True},
    {"discard": "new"},
    {"discard_new_per_subject": True},
    {"max_msgs_per_subject": 3},
    {"republish": {"src": "a", "dest": "b"}},
    {"republish": {"dest": "a.>"}},
    {"subject_transform": {"src": "a.>", "dest": "b"}},
    {"subject_transform": {"src": "", "dest": "b.>"}},
    {"pedantic": True},
]
ON_MIRRORS = (
    {"allow_msg_counter": True},
    {"subject_delete_marker_ttl": 5_000_000_000},
    {"allow_msg_schedules": True},
    {"allow_msg_schedules": True, "subject_delete_marker_ttl": 5_000_000_000},
    {"allow_msg_schedules": True, "discard": "new"},
)


@pytest.mark.parametrize("one", FEATURES, ids=str)
def test_features_together_are_judged_alike(client, one):
    number = FEATURES.index(one)
    for other_number, other in enumerate(FEATURES):
        if other_number < number and not one.keys() & other.keys():
            continue  # the same as the other way round
        name = f"F{number}_{other_number}"
        subjects = [f"f{number}.{other_number}.>"]
        body = {"name": name, "subjects": subjects, **one, **other}
        client.made.append(name)
        client.ask(f"STREAM.CREATE.{name}", body)
        if other_number % 3 == 0:
            client.ask(f"STREAM.UPDATE.{name}", {**body, **FEATURES[other_number - 4]})


def test_what_mirrors_can_not_have(client):
    for number, more in enumerate(ON_MIRRORS):
        body = {"name": f"MIR{number}", "mirror": {"name": "NOBODY"}, **more}
        client.ask(f"STREAM.CREATE.MIR{number}", body)


# none that is taken is due within a test: a copy would take a sequence at any time
PATTERNS = ["@at 2100-01-01T00:00:00+02:00", "@at x", "@at  2100"]
PATTERNS += [
    "@every 1h",
    "@every 999ms",
    "@every x",
    "@every 1h1.5s",
    "@daily",
    "@Daily",
    "@hourly",
]
PATTERNS += [
    "0 0 0 1 1 *",
    "* * * * *",
    "60 * * * * *",
    "0 0 0 30 2 *",
    "*/5 1-3 ? jan MON-fri 0/2",
]
PATTERNS += ["0 0 0 * * 7", "", " @daily", "@daily ", "1,2,,3 0 0 1 1 *", "x", "*/0 * * * * *"]
PATTERNS += [
    "0 0 0 1 1 sun,Tue",
    "0 0 0 1 DEC/2 *",
    "0-5/2 0 0 1 1 *",
    "5-1 0 0 1 1 *",
    "+5 0 0 1 1 *",
]
SCHEDULED = [
    "",
    "Nats-Schedule-Target: N.plan",
    "Nats-Schedule-Target: N.*",
    "Nats-Schedule-Target: other",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Source: N.out",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Source: N.plan",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Source: N.>",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Source: other",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Source: N.data",
    "Nats-Schedule-Target: N.out\nNats-Schedule-TTL: 5",
    "Nats-Schedule-Target: N.out\nNats-Schedule-TTL: never",
    "Nats-Schedule-Target: N.out\nNats-Schedule-TTL: 0",
    "Nats-Schedule-Target: N.out\nNats-Schedule-TTL: 0\nNats-Schedule-Rollup: x",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Rollup: sub",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Rollup: SUB",
    "Nats-Schedule-Target: N.out\nNats-Rollup: SUB",
    "Nats-Schedule-Target: N.out\nNats-Rollup: all",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Time-Zone: Europe/Berlin",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Time-Zone: Nowhere",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Time-Zone:",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Next: purge",
    "Nats-Schedule-Target: N.out\nNats-Schedule-Next: purge\nNats-Scheduler: N.nobody",
    "Nats-Schedule-Target: N.out\nNats-Scheduler: N.x",
    "Nats-Schedule-Target: N.out\nNats-Expected-Last-Sequence: 999",
]
CANCELS = ["purge", "Purge", "later", ""]


@pytest.mark.parametrize("config", [{}, {"allow_msg_schedules": True}], ids=str)
def test_schedules_are_judged_alike(client, config):
    scene = Scene(client, **config)
    name = scene.name
    for number, pattern in enumerate(PATTERNS):
        target = f"Nats-Schedule-Target: {name}.out.{number}"
        put(scene, f"plan.{number}", headers=f"Nats-Schedule: {pattern}\n{target}")
        zone = "Nats-Schedule-Time-Zone: Europe/Berlin"
        put(scene, f"plan.{number}", headers=f"Nats-Schedule: {pattern}\n{target}\n{zone}")
    for more in SCHEDULED:
        headers = f"Nats-Schedule: @daily\n{more}".replace("N.", f"{name}.")
        put(scene, "plan", headers=headers)
        put(scene, "plan", headers=headers.replace("@daily", "@yearlyish"))
    put(scene, "plain")
    for cancel in CANCELS:
        for scheduler in ("", f"{name}.plan", f"{name}.plain", f"{name}.nobody", f"{name}.>", "x"):
            for subject in ("x", "plan"):
                headers = f"Nats-Schedule-Next: {cancel}\nNats-Scheduler: {scheduler}"
                put(scene, subject, headers=headers)
    put(scene, "x", headers="Nats-Schedule-Next: purge")
    put(scene, "x", headers="Nats-Schedule-Target: y")
    due = f"Nats-Schedule: @at 2000-01-01T00:00:00Z\nNats-Schedule-Target: {name}.out"
    put(scene, "due", headers=due)  # the last one: its copy takes a sequence at any time


def test_schedules_produce_the_same(client):
    scenes = [
        Scene(client, allow_msg_schedules=True, allow_msg_ttl=True, storage=storage)
        for storage in ("file", "memory")
    ]
    soon = f"Nats-Schedule: @at {format_time(time.time_ns() + 1_500_000_000)}"
    for scene in scenes:
        name = scene.name
        put(scene, "data", "from data", "Kept: 1\nNats-Msg-Id: 7\nNats-TTL: 100")
        for number, more in enumerate(
            (
                "My: own\nNats-Msg-Id: 8",
                f"Nats-Schedule-Source: {name}.data",
                f"Nats-Schedule-Source: {name}.nothing\nNats-TTL: 50",
                "Nats-Schedule-TTL: 1h",
                "Nats-Schedule-Rollup: sub",
                "Nats-Expected-Last-Subject-Sequence: 0",
                "Nats-Rollup: sub",
            )
        ):
            target = f"Nats-Schedule-Target: {name}.out.{number}"
            put(scene, f"plan.{number}", f"b{number}", f"A: b\n{soon}\n{target}\n{more}")
        target = f"Nats-Schedule-Target: {name}.out"
        put(scene, "far", headers=f"Nats-Schedule: @daily\n{target}")
        put(scene, "off", headers=f"Nats-Schedule: @daily\n{target}")
    client.wait(2.5)
    for scene in scenes:
        put(scene, "x", headers=f"Nats-Schedule-Next: purge\nNats-Scheduler: {scene.name}.off")
        state(scene)


def test_counters_of_other_streams(client):
    client.say("UNSUB 3\r\n")  # how streams hear of each other is their own affair
    one, two = (Scene(client, allow_msg_counter=True) for _ in range(2))
    name = f"{one.name}SUM"
    client.made.append(name)
    body = {
        "name": name,
        "subjects": [f"{name}.>"],
        "allow_msg_counter": True,
        "sources": [
            {
                "name": each.name,
                "subject_transforms": [{"src": f"{each.name}.>", "dest": f"{name}.>"}],
            }
            for each in (one, two)
        ],
    }
    client.ask(f"STREAM.CREATE.{name}", body)
    client.wait(0.5)
    for scene, number in ((one, "5"), (two, "7"), (one, "-3"), (two, "1000"), (one, "1")):
        put(scene, "a", "", f"Nats-Incr: {number}")
        client.wait(0.4)
    client.publish(f"{name}.a", "", "Nats-Incr: 10", reply="in.ack")
    put(one, "a", "", "Nats-Incr: 100")
    client.wait(0.4)
    for seq in range(1, 9):
        client.ask(f"STREAM.MSG.GET.{name}", {"seq": seq})


def test_what_an_origin_allowed(client):
    client.say("UNSUB 3\r\n")
    origin = Scene(client, allow_msg_ttl=True, allow_rollup_hdrs=True, allow_msg_schedules=True)
    for number, more in enumerate(({}, {"allow_msg_ttl": True}, {"allow_rollup_hdrs": True})):
        name = f"{origin.name}COPY{number}"
        client.made.append(name)
        client.ask(
            f"STREAM.CREATE.{name}", {"name": name, "sources": [{"name": origin.name}], **more}
        )
        name = f"{origin.name}MIRROR{number}"
        client.made.append(name)
        client.ask(f"STREAM.CREATE.{name}", {"name": name, "mirror": {"name": origin.name}, **more})
    client.wait(0.5)
    put(origin, "a")
    put(origin, "a", headers="Nats-TTL: 2")
    put(origin, "b", headers="Nats-TTL: never")
    put(origin, "a", headers="Nats-Rollup: sub")
    put(origin, "c")
    target = f"Nats-Schedule-Target: {origin.name}.out"
    put(origin, "plan", headers=f"Nats-Schedule: @daily\n{target}")
    client.wait(3.5)
    for kind in ("COPY", "MIRROR"):
        for number in range(3):
            for seq in range(1, 7):
                client.ask(f"STREAM.MSG.GET.{origin.name}{kind}{number}", {"seq": seq})


def test_only_servers_say_where_a_message_comes_from(client):
    for config in ({}, {"allow_msg_ttl": True, "allow_msg_schedules": True}):
        scene = Scene(client, **config)
        put(scene, "a", headers="Nats-Msg-Id: 1")
        for more in (
            "Nats-Msg-Id: 1",
            "Nats-Expected-Last-Sequence: 9",
            "Nats-Expected-Last-Msg-Id: 9",
            "Nats-Rollup: x",
            "Nats-Incr: 1",
            "Nats-Schedule: x",
            "Nats-TTL: 0",
        ):
            put(scene, "a", headers=f"Nats-Stream-Source: S 1\n{more}")
        put(scene, "a", headers="Nats-Stream-Source:")
        put(scene, "a", headers="nats-stream-source: x")


def test_features_of_a_stream_that_nobody_reads(client):
    scene = Scene(
        client,
        retention="interest",
        allow_msg_ttl=True,
        allow_msg_schedules=True,
        republish={"dest": "nobody.>"},
    )
    client.say("SUB nobody.> 7\r\n")
    target = f"Nats-Schedule-Target: {scene.name}.out"
    for headers in (
        None,
        "Nats-Rollup: sub",
        "Nats-TTL: 1",
        "Nats-TTL: 0",
        f"Nats-Schedule: @daily\n{target}",
        f"Nats-Schedule-Next: purge\nNats-Scheduler: {scene.name}.a",
    ):
        put(scene, "a", headers=headers)
        put(scene, "b", headers=headers)
    scene.consumer(filter_subject=f"{scene.name}.a")
    for headers in (None, "Nats-Rollup: sub", "Nats-TTL: 1", "Nats-Rollup: all"):
        put(scene, "a", headers=headers)
        put(scene, "b", headers=headers)
    put(scene, "a")
    put(scene, "b", headers="Nats-Rollup: all")
    state(scene)


def test_a_sealed_stream_and_ends(client):
    scenes = []
    for marker in (0, 1):
        ends = {"allow_msg_ttl": True, "subject_delete_marker_ttl": second(marker)}
        scene = Scene(client, **ends)
        scenes.append(scene)
        put(scene, "a", headers="Nats-TTL: 1")
        put(scene, "b", headers="Nats-TTL: 1")
        put(scene, "b")
        name = scene.name
        body = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "sealed": True}
        client.ask(f"STREAM.UPDATE.{name}", {**body, **ends})
        put(scene, "a")
    client.wait(2.5)
    for scene in scenes:
        state(scene)
