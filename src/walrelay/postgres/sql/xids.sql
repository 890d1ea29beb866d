-- The oldest transaction that is not finished yet.
SELECT pg_catalog.pg_is_in_recovery() AS standby,
       pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8 AS xmin
