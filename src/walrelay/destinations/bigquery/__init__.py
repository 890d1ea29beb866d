"""Tables in a dataset of BigQuery."""
