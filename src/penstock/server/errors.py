"""Errors of a start; the server prints each as one line, without a traceback."""


class StartError(Exception):
    """The server can't start as asked. The text says what is wrong and what to do; the process
    exits with status 1.
    """


class OptionError(StartError):
    """A command line option is unknown, lacks its value, or has a value it can't have; status 2."""


class ConfigError(StartError):
    """A configuration file can't be used; the text has one line for each problem, as
    ``file:line:column: message``.
    """


def unreadable(problem: OSError | UnicodeDecodeError) -> str:
    """Why a text file can't be read, in a few words."""
    reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
    return reason or str(problem)
