"""Tables in a schema of Snowflake."""
