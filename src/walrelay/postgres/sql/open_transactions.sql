-- Transactions that have written and are not over, in all databases: prepared ones, and those of sessions. Either those
-- for whose end the process `waiting` waits now, or, without one, those that are older than `old`.
WITH waited AS (
    SELECT l.transactionid FROM pg_catalog.pg_locks l
    WHERE l.pid = %(waiting)s AND l.locktype = 'transactionid' AND NOT l.granted
)
SELECT p.gid, quote_literal(p.gid) AS quoted, NULL::int4 AS pid, '' AS application, 'prepared' AS state,
       extract(epoch FROM clock_timestamp() - p.prepared)::float8 AS age
FROM pg_catalog.pg_prepared_xacts p
WHERE p.transaction IN (SELECT transactionid FROM waited)
   OR (%(waiting)s::int4 IS NULL AND p.prepared <= clock_timestamp() - %(old)s::interval)
UNION ALL
SELECT NULL, NULL, a.pid, a.application_name, a.state,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8
FROM pg_catalog.pg_stat_activity a
WHERE a.backend_xid IN (SELECT transactionid FROM waited)
   OR (%(waiting)s::int4 IS NULL AND a.backend_xid IS NOT NULL AND a.xact_start <= clock_timestamp() - %(old)s::interval)
ORDER BY age DESC NULLS LAST
