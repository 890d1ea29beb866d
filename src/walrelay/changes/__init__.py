"""What a destination is given: copies and changes, as files, Arrow, rows or Spark DataFrames."""
