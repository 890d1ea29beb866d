-- As membership_15.sql; row filters, column lists and published schemas came with 15.
SELECT t.id::int8 AS id, format('%%s:%%s', p.oid, p.xmin) AS publication,
       coalesce(listed.marks, '') AS membership,
       NULL::text AS filter, NULL::text AS columns, listed.marks IS NULL AS by_all,
       NULL::text AS own_columns, NULL::bool AS sends_generated
FROM unnest(%(tables)s::oid[]) AS t(id)
JOIN pg_catalog.pg_publication p ON p.pubname = %(publication)s
CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT t.id UNION SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(t.id::regclass)) AS line
) AS above
LEFT JOIN LATERAL (
    SELECT string_agg(r.oid::text, ',' ORDER BY r.oid) AS marks
    FROM pg_catalog.pg_publication_rel r
    WHERE r.prpubid = p.oid AND r.prrelid = ANY (above.line)
) AS listed ON true
