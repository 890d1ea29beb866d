-- The relations that hold a table's rows: itself, or the leaves below a partitioned one.
SELECT c.oid::int8 AS id, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       CASE WHEN c.relkind IN ('r', 'm') THEN pg_catalog.pg_relation_size(c.oid) ELSE 0 END AS bytes,
       CASE WHEN c.relkind IN ('r', 'm') THEN pg_catalog.pg_table_size(c.oid) ELSE 0 END AS stored_bytes
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid IN (
    SELECT %(table)s::oid
    UNION
    SELECT relid FROM pg_catalog.pg_partition_tree(%(table)s::oid::regclass) WHERE isleaf
)
  AND c.relkind <> 'p'
ORDER BY c.oid
