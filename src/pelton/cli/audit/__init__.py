"""The commands of ``pelton audit``: gather what servers say, and check it for what goes wrong later."""
