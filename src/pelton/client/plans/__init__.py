"""The requests of JetStream's API and what their answers mean, as plans without transport or waiting."""
