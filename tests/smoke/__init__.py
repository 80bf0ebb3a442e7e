"""The smoke suite: the installed wheel in an environment of each Python of this machine."""
