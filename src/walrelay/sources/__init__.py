"""Where changes come from, and what brings them into a change log."""
