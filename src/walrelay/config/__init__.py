"""Settings: strict, frozen, explained; the only package that reads files or the environment."""
