"""How fast a copy is, how much memory a task takes, and what damaged streams do: `python -m benchmarks`."""
