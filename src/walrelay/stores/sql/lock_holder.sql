SELECT a.application_name, a.backend_start
FROM pg_locks l
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory'
  AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = %(high)s::bigint::oid
  AND l.objid = %(low)s::bigint::oid
  AND l.objsubid = 1
