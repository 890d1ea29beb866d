"""Tables in ClickHouse: versions of rows are appended, and a view under each table's name shows the current ones."""
