"""What the destinations that Spark itself writes have in common: sessions, names, statements and how far tables are."""
