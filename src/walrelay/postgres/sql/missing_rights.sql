-- The statements that give the role what it lacks to read a table: the right to enter its schema, and to read the table
-- itself, which is locked by its own name, and its partitions, which are read by theirs. Where somebody has chosen
-- columns it says nothing: which of them are wanted is the publication's matter.
WITH parts AS (
    SELECT p.oid, p.relname AS name, n.oid AS schema_id, n.nspname AS schema
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)) AS part (id)
    JOIN pg_catalog.pg_class p ON p.oid = part.id
    JOIN pg_catalog.pg_namespace n ON n.oid = p.relnamespace
    WHERE s.nspname = %(schema)s AND c.relname = %(name)s
)
SELECT DISTINCT 1 AS place, format('GRANT USAGE ON SCHEMA %%I TO %%I;', schema, current_user) AS statement
FROM parts WHERE NOT has_schema_privilege(schema_id, 'USAGE')
UNION ALL
SELECT 2, format('GRANT SELECT ON %%I.%%I TO %%I;', schema, name, current_user)
FROM parts WHERE NOT has_any_column_privilege(oid, 'SELECT')
ORDER BY 1, 2
