-- Partitions that name a changed row by other columns than the key of the table under whose name it is sent
-- (publish_via_partition_root): the old row in a change is the partition's, its description the root's.
-- As RelationGetReplicaIndex has it: only an index that is valid and checked at once identifies rows.
SELECT t.id::int8 AS table_id, format('%%I.%%I', n.nspname, leaf.relname) AS leaf,
       sent.key AS leaf_key, coalesce(wanted.key, '{}') AS root_key, root.relreplident::text AS root_identity
FROM unnest(%(tables)s::oid[]) AS t(id)
JOIN pg_catalog.pg_class root ON root.oid = t.id AND root.relkind = 'p'
CROSS JOIN LATERAL pg_catalog.pg_partition_tree(t.id::regclass) AS part
JOIN pg_catalog.pg_class leaf ON leaf.oid = part.relid AND part.isleaf AND leaf.relkind = 'r'
JOIN pg_catalog.pg_namespace n ON n.oid = leaf.relnamespace
LEFT JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY a.attnum) AS key
    FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = root.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = root.oid AND i.indisvalid AND i.indimmediate
      AND CASE root.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
) AS wanted ON true
JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY a.attnum) AS key
    FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = leaf.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = leaf.oid AND i.indisvalid AND i.indimmediate
      AND CASE leaf.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
) AS sent ON sent.key IS NOT NULL
WHERE NOT coalesce(wanted.key <@ sent.key, false)
ORDER BY n.nspname, leaf.relname
