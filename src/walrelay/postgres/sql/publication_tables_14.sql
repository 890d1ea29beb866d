SELECT c.oid::int8 AS id, t.schemaname::text AS schema, t.tablename::text AS name,
       NULL::text[] AS columns, NULL::text AS row_filter
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = %(publication)s AND (%(table)s::oid IS NULL OR c.oid = %(table)s::oid)
ORDER BY t.schemaname, t.tablename
