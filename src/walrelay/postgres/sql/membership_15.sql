-- How the publication has each table: marks that change with whatever is altered, also there and back.
-- A partition is in it by its ancestors, too; a schema's tables by what says in which schema they are.
SELECT t.id::int8 AS id, format('%%s:%%s', p.oid, p.xmin) AS publication,
       coalesce(listed.marks, '') || '/' || coalesce(spaces.marks, '') AS membership,
       listed.filter, listed.columns, listed.marks IS NULL AS by_all,
       listed.own AS own_columns, to_jsonb(p) ->> 'pubgencols' = 's' AS sends_generated
FROM unnest(%(tables)s::oid[]) AS t(id)
JOIN pg_catalog.pg_publication p ON p.pubname = %(publication)s
CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT t.id UNION SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(t.id::regclass)) AS line
) AS above
LEFT JOIN LATERAL (
    SELECT string_agg(r.oid::text, ',' ORDER BY r.oid) AS marks,
           string_agg(r.prqual::text, ',' ORDER BY r.oid) AS filter,
           string_agg(r.prattrs::text, ',' ORDER BY r.oid) AS columns,
           -- Of an ancestor's list pgoutput takes no notice when it sends a partition under its own name.
           string_agg(r.prattrs::text, ',') FILTER (WHERE r.prrelid = t.id) AS own
    FROM pg_catalog.pg_publication_rel r
    WHERE r.prpubid = p.oid AND r.prrelid = ANY (above.line)
) AS listed ON true
LEFT JOIN LATERAL (
    SELECT string_agg(format('%%s:%%s', s.oid, d.xmin), ',' ORDER BY s.oid, d.objid) AS marks
    FROM pg_catalog.pg_publication_namespace s
    JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_namespace'::regclass AND d.refobjid = s.pnnspid
     AND d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = ANY (above.line)
    WHERE s.pnpubid = p.oid
) AS spaces ON true
