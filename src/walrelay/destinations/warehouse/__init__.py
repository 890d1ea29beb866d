"""What warehouses have in common: Spark lands load files, the service takes them, one transaction applies them."""
