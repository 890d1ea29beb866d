"""Columns of Postgres's binary values → Arrow, one type family per file; pure; used by both roads.

A decoder takes the fields of one column, `(buffer, starts, lengths)`, and returns one Arrow array. The loops are numba
kernels; `registry` says which Postgres type goes to which decoder and which Arrow, DuckDB and Spark type it becomes.
"""
