-- The relations that hold the rows of the published tables: how their rows are identified, and whether we may read them.
SELECT t.id::int8 AS table_id, c.relkind::text AS kind, c.relreplident::text AS identity,
       quote_ident(n.nspname) AS schema, format('%%I.%%I', n.nspname, c.relname) AS name,
       has_schema_privilege(n.oid, 'USAGE') AS schema_usage,
       row_security_active(c.oid) AS row_security,
       has_any_column_privilege(c.oid, 'SELECT') AS partly_readable,
       -- ctid among them: the copy of a large table is cut by it, and only a right on the table includes it.
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND NOT a.attisdropped AND (a.attnum > 0 OR a.attname = 'ctid')
               AND NOT has_table_privilege(c.oid, 'SELECT')
               AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')
             ORDER BY a.attnum) AS unreadable,
       -- As RelationGetReplicaIndex has it: a deferrable key does not identify rows.
       (SELECT array_agg(a.attname::text ORDER BY a.attnum)
        FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
          AND CASE c.relreplident WHEN 'd' THEN i.indisprimary
                                  WHEN 'i' THEN i.indisreplident ELSE false END) AS replica_key
FROM unnest(%(tables)s::oid[]) AS t(id)
CROSS JOIN LATERAL (
    SELECT t.id
    UNION
    SELECT relid FROM pg_catalog.pg_partition_tree(t.id::regclass) WHERE isleaf
) AS leaf(id)
JOIN pg_catalog.pg_class c ON c.oid = leaf.id
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p'
ORDER BY n.nspname, c.relname
