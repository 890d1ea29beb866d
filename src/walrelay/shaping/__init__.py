"""What is done to a table's rows between the source and a destination: on both roads, the same."""
