-- The columns of the published tables.
SELECT a.attrelid::int8 AS table_id, a.attname::text AS name, a.attgenerated::text AS generated,
       a.atttypid::int8 AS type, pg_catalog.format_type(a.atttypid, a.atttypmod) AS display,
       coalesce(a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]), false) AS in_key,
       -- Whether a value may be stored outside of its row, and is then not sent again while it does not change.
       a.attlen = -1 AND a.attstorage <> 'p' AS may_be_toasted,
       -- A column that the publication's row filter or column list names (PublicationRelInfo in pg_publication.c).
       EXISTS (
           SELECT FROM pg_catalog.pg_publication_rel r
           JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid AND p.pubname = %(publication)s
           JOIN pg_catalog.pg_depend d ON d.objid = r.oid
            AND d.classid = 'pg_catalog.pg_publication_rel'::regclass
            AND d.refclassid = 'pg_catalog.pg_class'::regclass
           WHERE r.prrelid = a.attrelid AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
       ) AS is_named
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND i.indimmediate
    AND i.indisvalid AND i.indisready AND i.indislive
WHERE a.attrelid = ANY (%(tables)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
