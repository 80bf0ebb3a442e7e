"""Official clients' own test suites against this server: see ``run``."""
