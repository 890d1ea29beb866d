"""Who moves what when."""
