"""The parts of the contract suites of destinations; `destination_contract` and `stream_contract` put them together."""
