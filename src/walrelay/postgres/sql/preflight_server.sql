-- The server's settings and what is left of its slots and senders, and the rights of the role that asks.
SELECT current_setting('server_version') AS version_text,
       pg_is_in_recovery() AS is_standby,
       current_setting('hot_standby_feedback')::bool AS standby_feedback,
       current_setting('wal_level') AS wal_level,
       ARRAY(SELECT name FROM unnest(%(managed_settings)s::text[]) AS known(name)
             WHERE current_setting(name, true) IS NOT NULL) AS managed_settings,
       current_setting('max_replication_slots')::int4 AS max_slots,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots) AS used_slots,
       ARRAY(SELECT slot_name::text FROM pg_catalog.pg_replication_slots
             WHERE NOT active ORDER BY slot_name) AS idle_slots,
       current_setting('max_wal_senders')::int4 AS max_senders,
       (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS used_senders,
       (SELECT setting::int8 FROM pg_catalog.pg_settings
        WHERE name = 'max_slot_wal_keep_size') AS slot_wal_keep_mb,
       current_setting('idle_replication_slot_timeout', true) AS idle_slot_timeout,
       pg_backend_pid() AS backend_pid,
       quote_ident(r.rolname) AS role,
       r.rolsuper OR r.rolreplication OR EXISTS (
           SELECT FROM pg_catalog.pg_roles m
           WHERE m.rolname = ANY (%(replication_roles)s::text[]) AND pg_has_role(m.oid, 'MEMBER')
       ) AS may_replicate,
       (SELECT quote_ident(m.rolname) FROM pg_catalog.pg_roles m
        WHERE m.rolname = ANY (%(replication_roles)s::text[]) ORDER BY m.rolname LIMIT 1) AS replication_role,
       quote_ident(%(publication)s) AS publication
FROM pg_catalog.pg_roles r
WHERE r.rolname = current_user
