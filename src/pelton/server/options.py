"""The command line: nats-server's flags, parsed as Go programs parse them.

Options have one or two dashes, and the forms ``-f value`` and ``-f=value``; a boolean stands alone or
takes ``=true`` or ``=false``. Options override the configuration file. The module imports nothing
heavy, because it answers --help and --version.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from pelton.server.errors import OptionError
from pelton.server.units import is_whole, parse_duration, parse_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM = "pelton-server"
SERVE = "pelton serve"
"""The same program as a command of ``pelton``: it takes a file, and starts without one."""

USAGE = """\
Usage: pelton-server [options]

Server options:
    -a, --addr, --net <host>         Bind to this address (default: 0.0.0.0)
    -p, --port <port>                Port for clients (default: 4222, -1: any free one)
    -n, --name
        --server_name <name>         Server name (default: the server id)
    -P, --pid <file>                 Write the process id to this file
    -m, --http_port <port>           Port for HTTP monitoring (-1: any free one)
    -ms, --https_port <port>         Port for HTTPS monitoring
    -c, --config <file>              Configuration file; options win over it
    -t                               Check the configuration and exit
    -sl, --signal <signal>[=<pid>]   Signal a running server (ldm, stop, quit, term, reopen, reload);
                                     <pid> is a process id, its beginning and *, or a pid file;
                                     without it, the one server that runs
        --client_advertise <host>    Address that clients are told instead of the one listened on
        --ports_file_dir <dir>       Write <executable>_<pid>.ports, the ports in use, into this folder

Logging options:
    -l, --log <file>                 Log to this file
    -T, --logtime                    Timestamps on log lines (default: true)
        --logtime_utc                Timestamps in UTC (default: false)
        --log_format <text|json>     Form of log lines (default: text)
    -s, --syslog                     Log to syslog
    -r, --remote_syslog <address>    Syslog server (udp://localhost:514)
    -D, --debug                      Log debugging lines
    -V, --trace                      Log what clients send and get
    -VV                              The same, of the system account too
    -DV, -DVV                        Debug and trace; debug and -VV
        --log_size_limit <bytes>     Put the log file aside at this size (default: never)
        --max_traced_msg_len <n>     Bytes of a message that are traced (default: all)

JetStream options:
    -js, --jetstream                 Enable JetStream
    -sd, --store_dir <dir>           Folder that streams are kept in
        --sync_interval <when>       'always': an ack means on disk (default); a duration such as
                                     2m: fsync that often

Authorization options:
        --user <user>                User that clients have to present
        --pass <password>            Its password
        --auth <token>               Token that clients have to present

TLS options:
        --tls                        Serve TLS
        --tlscert <file>             Certificate of this server
        --tlskey <file>              Its private key
        --tlsverify                  Serve TLS; clients have to show a certificate
        --tlscacert <file>           Certificate authority that theirs has to be of

Cluster options (this is a server of its own: names and ports are kept, routes are refused):
        --cluster_name <name>        Name of the cluster
        --cluster, --cluster_listen <url>  Address for routes; the server does not listen there
        --routes <urls>              Refused, but for this server's own address
        --no_advertise, --cluster_advertise, --connect_retries  Taken, without effect

Profiling options:
        --profile <port>             Port for profiling over HTTP

Common options:
    -h, --help                       Show this text
    -v, --version                    Show the version
        --help_tls                   Show the TLS options
"""


_SERVE_USAGE = f"""\
{SERVE} [options] [file]

The file is a configuration file, as with -c. Without a file the server has JetStream, listens
on 127.0.0.1, and keeps its streams in $XDG_DATA_HOME/pelton (default: ~/.local/share/pelton).
"""


class Options(Struct):
    """The parsed command line: an action, and the given settings by attribute name of Settings."""

    action: str  # run, check, help, help_tls, version or signal
    given: "dict[str, Any]"
    config: str = ""
    signal: str = ""
    tls: "dict[str, Any] | None" = None  # attributes of settings.tls.Tls


class _Flag(Struct):
    target: str  # a Settings attribute, or ":name" for parse_options itself
    convert: "Callable[[str], Any] | None"  # None: a boolean


def _text(value: str) -> str:
    if not value:
        raise ValueError("the value is empty")
    return value


def _name(value: str) -> str:
    if not value or any(c.isspace() for c in value):
        raise ValueError("a server name must not be empty or contain spaces")
    return value


def _sync_interval(value: str) -> int:
    if value.lower() == "always":
        return 0
    ns = parse_duration(value)
    if ns <= 0:
        raise ValueError('it has to be "always" or a duration above 0')
    return ns


def _log_format(value: str) -> str:
    if value not in ("text", "json"):
        raise ValueError("it has to be text or json")
    return value


def _count(value: str) -> int:
    if not is_whole(value):
        raise ValueError("it has to be a whole number")
    return max(int(value), 0)


def _cluster_url(value: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(value)
    if not parts.scheme or not _has_port(parts.netloc):
        raise ValueError("it has to be a URL with a port, such as nats://0.0.0.0:6222")
    return value


def _has_port(place: str) -> bool:
    port = place.rpartition(":")[2]
    return ":" in place and (port == "-1" or port.isdecimal())


def _routes(value: str) -> list[str]:
    return [each.strip() for each in value.split(",") if each.strip()]


_FLAGS: dict[str, _Flag] = {
    name: flag
    for names, flag in (
        ("a addr net", _Flag("host", _text)),
        ("p port", _Flag("port", parse_port)),
        ("n name server_name", _Flag("server_name", _name)),
        ("m http_port", _Flag("http_port", parse_port)),
        ("c config", _Flag(":config", _text)),
        ("t", _Flag(":check", None)),
        ("P pid", _Flag("pid_file", _text)),
        ("ports_file_dir", _Flag("ports_file_dir", _text)),
        ("sl signal", _Flag(":signal", _text)),
        ("js jetstream", _Flag("jetstream", None)),
        ("sd store_dir", _Flag("store_dir", _text)),
        ("sync_interval", _Flag("sync_interval_ns", _sync_interval)),
        ("l log", _Flag("log_file", _text)),
        ("T logtime", _Flag("logtime", None)),
        ("logtime_utc", _Flag("logtime_utc", None)),
        ("log_format", _Flag("log_format", _log_format)),
        ("D debug", _Flag("debug", None)),
        ("V trace", _Flag("trace", None)),
        ("DV", _Flag(":debug_trace", None)),
        ("VV", _Flag(":trace_all", None)),
        ("DVV", _Flag(":debug_trace_all", None)),
        ("ms https_port", _Flag("https_port", parse_port)),
        ("client_advertise", _Flag("client_advertise", _text)),
        ("s syslog", _Flag("syslog", None)),
        ("r remote_syslog", _Flag("remote_syslog", _text)),
        ("log_size_limit", _Flag("log_size_limit", _count)),
        ("max_traced_msg_len", _Flag("max_traced_msg_len", _count)),
        ("profile", _Flag("prof_port", parse_port)),
        ("cluster_name", _Flag("cluster_name", _name)),
        ("cluster cluster_listen", _Flag(":cluster", _cluster_url)),
        ("routes", _Flag("cluster_routes", _routes)),
        ("no_advertise", _Flag(":nothing", None)),
        ("cluster_advertise", _Flag(":nothing", _text)),
        ("connect_retries", _Flag(":nothing", _count)),
        ("user", _Flag("user", _text)),
        ("pass", _Flag("password", _text)),
        ("auth", _Flag("token", _text)),
        ("tls", _Flag(":tls", None)),
        ("tlscert", _Flag(":tls_cert_file", _text)),
        ("tlskey", _Flag(":tls_key_file", _text)),
        ("tlsverify", _Flag(":tls_verify", None)),
        ("tlscacert", _Flag(":tls_ca_file", _text)),
        ("help_tls", _Flag(":help_tls", None)),
        ("h help", _Flag(":help", None)),
        ("v version", _Flag(":version", None)),
    )
    for name in names.split()
}

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def usage(program: str = PROGRAM) -> str:
    """The text of --help."""
    if program != SERVE:
        return USAGE
    return USAGE.replace(f"{PROGRAM} [options]\n", _SERVE_USAGE, 1)


def parse_options(arguments: Sequence[str], program: str = PROGRAM) -> Options:
    """Parse the arguments after the program's name. OptionError names the wrong argument."""
    found: dict[str, Any] = {}
    rest = list(arguments)
    files: list[str] = []
    while rest:
        argument = rest.pop(0)
        if program == SERVE and not argument.startswith("-"):
            files.append(argument)
            continue
        name, flag, value = _split(argument, program)
        if flag.convert is None:
            found[flag.target] = _boolean(name, value)
            continue
        if value is None:
            if not rest:
                raise OptionError(f"option {name} needs a value; see {program} --help")
            value = rest.pop(0)
        try:
            found[flag.target] = flag.convert(value)
        except ValueError as problem:
            raise OptionError(f'invalid value "{value}" for option {name}: {problem}') from None
    named = [*files, *([found[":config"]] if files and ":config" in found else [])]
    if len(named) > 1:
        raise OptionError(f"there is one configuration file, not {len(named)}: {' '.join(named)}")
    if named:
        found[":config"] = _text(named[0])
    return _options(found)


def _split(argument: str, program: str) -> tuple[str, _Flag, str | None]:
    """Yields (the option as written, its row, the value after "=")."""
    body = argument.removeprefix("-").removeprefix("-")
    if body == argument or not body or body.startswith("-"):
        raise OptionError(f'unexpected argument "{argument}"; see {program} --help')
    name, equals, value = body.partition("=")
    shown = argument.partition("=")[0]
    flag = _FLAGS.get(name)
    if flag is None:
        raise OptionError(f"unknown option {shown}; see {program} --help")
    return shown, flag, value if equals else None


def _boolean(name: str, value: str | None) -> bool:
    if value is None:
        return True
    if value not in _BOOLEANS:
        raise OptionError(f'invalid value "{value}" for option {name}: it has to be true or false')
    return _BOOLEANS[value]


def _options(found: "dict[str, Any]") -> Options:
    everything = found.pop(":debug_trace_all", False)
    if found.pop(":debug_trace", False) or everything:
        found["debug"] = found["trace"] = True
    if found.pop(":trace_all", False) or everything:
        found["trace"] = found["trace_verbose"] = True
    special = {name: found.pop(name) for name in list(found) if name.startswith(":")}
    action = "run"
    for name, candidate in (
        (":check", "check"),
        (":signal", "signal"),
        (":version", "version"),
        (":help", "help"),
        (":help_tls", "help_tls"),
    ):
        if special.get(name):
            action = candidate
    if action in ("run", "check"):
        _check_credentials(found)
        _set_cluster(found, special.get(":cluster", ""))
    return Options(
        action, found, special.get(":config", ""), special.get(":signal", ""), _tls(special)
    )


def _tls(special: "dict[str, Any]") -> "dict[str, Any] | None":
    """Apply the --tls options; --tls=false disables TLS even when the file has it."""
    given = {
        name.removeprefix(":tls_"): value
        for name, value in special.items()
        if name.startswith(":tls_")
    }
    wanted = special.get(":tls")
    if wanted is False:
        return {}
    return {"wanted": True, **given} if given or wanted else None


def _set_cluster(found: "dict[str, Any]", url: str) -> None:
    if url:
        host, _, port = url.partition("://")[2].rpartition("@")[2].partition("/")[0].rpartition(":")
        found["cluster_host"] = host.strip("[]")
        found["cluster_port"] = int(port)


def _check_credentials(found: "dict[str, Any]") -> None:
    if "token" in found and ("user" in found or "password" in found):
        raise OptionError(
            "options --auth and --user/--pass exclude each other; give one kind of credentials"
        )
    if "password" in found and "user" not in found:
        raise OptionError("option --pass needs --user")
