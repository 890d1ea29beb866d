-- A replication slot, or all of them when none is named, with the columns that only newer servers have taken from its JSON form.
SELECT s.slot_name::text AS name, s.plugin::text AS plugin, s.slot_type, s.database::text AS database,
       s.active_pid, a.application_name AS active_application, host(a.client_addr) AS active_client, s.restart_lsn::text AS restart_lsn, s.confirmed_flush_lsn::text AS confirmed_lsn,
       s.wal_status, s.safe_wal_size AS safe_wal_bytes, s.two_phase, s.temporary,
       to_jsonb(s) ->> 'invalidation_reason' AS invalidation_reason,
       coalesce((to_jsonb(s) ->> 'conflicting')::boolean, false) AS conflicting,
       coalesce((to_jsonb(s) ->> 'failover')::boolean, false) AS failover,
       pg_catalog.pg_wal_lsn_diff(
           CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                ELSE pg_catalog.pg_current_wal_lsn() END, s.restart_lsn)::int8 AS retained_bytes,
       pg_catalog.pg_wal_lsn_diff(
           CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                ELSE pg_catalog.pg_current_wal_lsn() END, s.confirmed_flush_lsn)::int8 AS behind_bytes
FROM pg_catalog.pg_replication_slots s
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE %(slot)s::text IS NULL OR s.slot_name = %(slot)s
ORDER BY s.slot_name
