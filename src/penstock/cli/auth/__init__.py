"""The commands of ``penstock auth``: operators, accounts, users and their keys, as JWTs in a folder."""
