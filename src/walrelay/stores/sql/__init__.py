"""The store on a SQL database, one implementation for all of them."""
