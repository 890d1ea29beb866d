SELECT t.id::int8 AS id, coalesce(sum(pg_catalog.pg_table_size(c.oid)), 0)::int8 AS bytes,
       coalesce(sum(greatest(c.reltuples, 0)), 0)::int8 AS rows_estimate
FROM unnest(%(tables)s::oid[]) AS t(id)
LEFT JOIN LATERAL (
    SELECT t.id AS relid
    UNION
    SELECT relid FROM pg_catalog.pg_partition_tree(t.id::regclass) WHERE isleaf
) AS leaf ON true
LEFT JOIN pg_catalog.pg_class c ON c.oid = leaf.relid AND c.relkind IN ('r', 'm')
GROUP BY t.id
