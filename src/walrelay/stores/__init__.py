"""What a pipeline remembers: the contract (`base`) and its implementations."""
