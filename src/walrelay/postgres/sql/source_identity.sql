SELECT s.system_identifier::text AS system_identifier, d.oid::bigint AS database
FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d
WHERE d.datname = pg_catalog.current_database()
