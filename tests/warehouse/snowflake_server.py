"""Runs fakesnow's server, in its own environment: `python snowflake_server.py PORT`. Not a test."""

from __future__ import annotations

import importlib
import sys
import threading

if __name__ == "__main__":
    fakesnow = importlib.import_module("fakesnow")
    with fakesnow.server(port=int(sys.argv[1]), host="127.0.0.1"):
        threading.Event().wait()
