"""The command line: thin; every command calls something that is there for Python users too."""

from walrelay.cli.app import main

__all__ = ["main"]
