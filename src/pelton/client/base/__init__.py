"""What every package of the client uses: addresses, durations, messages, checks of arguments."""
