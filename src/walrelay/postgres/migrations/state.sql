-- What is installed of the DDL trigger, and whether it fires; needs no right on anything.
SELECT max(substring(obj_description(e.oid, 'pg_event_trigger') FROM 'version (\d+)$')::int4)
           FILTER (WHERE e.evtname = 'walrelay_ddl') AS version,
       count(*) > 0 AS present,
       count(*) FILTER (WHERE e.evtenabled = 'A') = 2
           AND coalesce(current_setting('event_triggers', true), 'on') = 'on' AS enabled,
       pg_is_in_recovery() AS is_standby
FROM pg_catalog.pg_event_trigger e
WHERE e.evtname IN ('walrelay_ddl', 'walrelay_drop')
