SELECT c.relreplident::text AS identity,
       coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum)
                 FROM pg_catalog.pg_index i
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                 WHERE i.indrelid = c.oid AND i.indisreplident AND i.indisvalid), '{}') AS index_columns
FROM pg_catalog.pg_class c
WHERE c.oid = %(table)s
