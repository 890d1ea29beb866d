"""From a replication slot into the change log: one process, which may be killed at any moment."""
