"""The public test kit: real parts and contract suites for testing walrelay and its extensions."""
