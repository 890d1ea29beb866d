"""Tables in another Postgres database."""
