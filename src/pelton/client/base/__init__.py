"""What every room of the client uses: addresses, durations, messages, checks of arguments, the steps of calls."""
