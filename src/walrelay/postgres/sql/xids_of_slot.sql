-- The oldest transaction that a slot may still have to decode, as a 64-bit xid, or an older one: age() counts from the
-- next xid, which is xmax or later.
SELECT pg_catalog.pg_is_in_recovery() AS standby,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8
           - pg_catalog.age(s.catalog_xmin) AS least
FROM pg_catalog.pg_replication_slots s
WHERE s.slot_name = %(slot)s
