"""Errors of a start; the server prints each as one line, without a traceback."""


class StartError(Exception):
    """The server can't start with these settings. The text names the problem and the remedy; the
    process exits with status 1.
    """


class OptionError(StartError):
    """A command line option is unknown, lacks its value, or has an invalid value; status 2."""


class ConfigError(StartError):
    """A configuration file can't be used; the text has one line for each problem, as
    ``file:line:column: message``.
    """


def unreadable(problem: OSError | UnicodeDecodeError) -> str:
    """A short text that says why a text file can't be read."""
    reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
    return reason or str(problem)
