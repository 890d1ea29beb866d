"""Compile every kernel once, in set-up, so that no user waits for it: `python -m walrelay.decode.warm`."""
