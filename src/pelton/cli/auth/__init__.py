"""The commands of ``pelton auth``: operators, accounts, users and their keys, as JWTs in a folder."""
