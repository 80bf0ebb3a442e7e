"""How far a log's sequences have gone, in the index file of its newest segment."""

from penstock.core.log import Log

def say_floor(log: Log) -> bool:
    """Write down the newest sequence that is on the disk, if it is not yet; whether it was written.

    To be called now and then, for every log but a mirror's. Never OSError: what the disk refuses is
    tried with the next call.
    """
