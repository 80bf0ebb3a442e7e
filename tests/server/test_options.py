"""The command line, as nats-server's users write it."""

import pytest

from pelton.server.errors import OptionError
from pelton.server.options import USAGE, parse_options


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("", {}),
        ("-js", {"jetstream": True}),
        ("--jetstream", {"jetstream": True}),
        ("--js", {"jetstream": True}),
        ("-js=false", {"jetstream": False}),
        ("--jetstream=T", {"jetstream": True}),
        ("-p 4333", {"port": 4333}),
        ("--port=4333", {"port": 4333}),
        ("-p -1", {"port": -1}),
        ("-p=-1", {"port": -1}),
        ("-a ::1", {"host": "::1"}),
        ("--addr=127.0.0.1 --net localhost", {"host": "localhost"}),
        ("-sd /x --store_dir /y", {"store_dir": "/y"}),
        ("-n one", {"server_name": "one"}),
        ("--name one --server_name two", {"server_name": "two"}),
        ("-m 8222", {"http_port": 8222}),
        ("-l f -P g --ports_file_dir h", {"log_file": "f", "pid_file": "g", "ports_file_dir": "h"}),
        ("-DV", {"debug": True, "trace": True}),
        ("-D -V", {"debug": True, "trace": True}),
        ("-T=false --logtime_utc", {"logtime": False, "logtime_utc": True}),
        ("--user a --pass b", {"user": "a", "password": "b"}),
        ("--auth s3cret", {"token": "s3cret"}),
        ("--sync_interval always", {"sync_interval_ns": 0}),
        ("--sync_interval 2m", {"sync_interval_ns": 120_000_000_000}),
        ("--log_format json", {"log_format": "json"}),
        ("--auth=a=b", {"token": "a=b"}),
    ],
)
def test_options_set_settings(line, given):
    options = parse_options(line.split())
    assert (options.action, options.given) == ("run", given)


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("-h", "help"),
        ("--help", "help"),
        ("-v", "version"),
        ("--version", "version"),
        ("-c f -t", "check"),
        ("-sl quit=12", "signal"),
        ("--signal ldm=/run/pid", "signal"),
        ("-v -h", "help"),
        ("-t=false", "run"),
    ],
)
def test_options_that_are_actions(line, action):
    assert parse_options(line.split()).action == action


def test_config_and_signal_keep_their_values():
    assert parse_options(["-c", "x.conf"]).config == "x.conf"
    assert parse_options(["-sl", "reload=7"]).signal == "reload=7"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--bogus", "unknown option --bogus"),
        ("-bogus=1", "unknown option -bogus"),
        ("-p", "option -p needs a value"),
        ("-p abc", 'invalid value "abc" for option -p'),
        ("-p 70000", 'invalid value "70000" for option -p'),
        ("-js=maybe", 'invalid value "maybe" for option -js'),
        ("serve", 'unexpected argument "serve"'),
        ("-", 'unexpected argument "-"'),
        ("--", 'unexpected argument "--"'),
        ("---p 1", 'unexpected argument "---p"'),
        ("-js true", 'unexpected argument "true"'),
        ("--cluster=nats://x", "option --cluster: it has to be a URL with a port"),
        ("--sync_interval 0s", '"always" or a duration above 0'),
        ("--sync_interval often", "is not a duration"),
        ("--log_format xml", "text or json"),
        ("--user a --auth t", "exclude each other"),
        ("--pass b", "option --pass needs --user"),
        ("-sd=", "the value is empty"),
        ("--server_name=", "must not be empty"),
    ],
)
def test_a_mistake_is_told_in_one_line(line, text):
    with pytest.raises(OptionError) as caught:
        parse_options(line.split())
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_help_names_every_option_with_a_value():
    for name in ("-sd", "--sync_interval", "--ports_file_dir", "--log_format", "-sl", "--auth"):
        assert name in USAGE
