-- An xid of our own, in a transaction that writes something: a message outside of all transactions.
SELECT pg_catalog.pg_current_xact_id()::text::int8 AS xid,
       pg_catalog.pg_logical_emit_message(false, %(prefix)s, '')
