"""The change log: durable segments of whole transactions, and the chain that names them (docs/decisions/0005)."""
