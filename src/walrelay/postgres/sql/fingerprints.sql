-- What tables look like, down to who wrote each row of the catalog last: one that is the same was not touched.
WITH RECURSIVE given AS (
    SELECT c.oid AS id, c.relname AS name, n.nspname AS schema, c.relkind AS kind, c.relpersistence AS persistence
    FROM unnest(%(tables)s::oid[]) AS t(id)
    JOIN pg_catalog.pg_class c ON c.oid = t.id
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
), used(table_id, type) AS (
    SELECT a.attrelid, a.atttypid
    FROM pg_catalog.pg_attribute a JOIN given ON given.id = a.attrelid
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
  UNION
    SELECT used.table_id, part.oid
    FROM used
    JOIN pg_catalog.pg_type t ON t.oid = used.type
    CROSS JOIN LATERAL (
        SELECT t.typelem WHERE t.typelem <> 0 AND t.typlen = -1
      UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd'
      UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
      UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE r.rngmultitypid = t.oid
      UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS part(oid)
    WHERE part.oid >= 16384
)
SELECT given.id::int8 AS id, given.schema::text AS schema, given.name::text AS name, given.persistence::text AS persistence,
       (SELECT a.xmin::text::int8 FROM pg_catalog.pg_attribute a WHERE a.attrelid = given.id AND a.attnum = -1) AS made_by,
       coalesce(columns.body, '[]') AS columns, coalesce(expressions.body, '[]') AS expressions,
       coalesce(storage.body, '[]') AS storage, coalesce(labels.body, '[]') AS labels,
       coalesce(attributes.body, '[]') AS attributes
FROM given
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.xmin::text::int8,
                                       a.attgenerated, a.attisdropped) ORDER BY a.attnum) AS body
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = given.id AND a.attnum > 0
) AS columns ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(a.attnum, d.oid::int8) ORDER BY a.attnum) AS body
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = given.id AND a.attgenerated <> ''
) AS expressions ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(c.oid::int8, pg_catalog.pg_relation_filenode(c.oid)::int8,
                                       coalesce(i.xmin::text::int8, 0), c.reltoastrelid::int8) ORDER BY c.oid) AS body
    FROM (SELECT given.id AS relid WHERE given.kind <> 'p'
          UNION SELECT relid FROM pg_catalog.pg_partition_tree(given.id::regclass) WHERE isleaf AND given.kind = 'p') AS leaf
    JOIN pg_catalog.pg_class c ON c.oid = leaf.relid AND c.relkind <> 'p'
    LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid AND c.relispartition AND NOT i.inhdetachpending
) AS storage ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(e.oid::int8, e.enumlabel, e.xmin::text::int8) ORDER BY e.oid) AS body
    FROM used JOIN pg_catalog.pg_enum e ON e.enumtypid = used.type WHERE used.table_id = given.id
) AS labels ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(a.attrelid::int8, a.attnum, a.attname, a.atttypid::int8, a.atttypmod,
                                       a.attisdropped, a.xmin::text::int8) ORDER BY a.attrelid, a.attnum) AS body
    FROM used
    JOIN pg_catalog.pg_type t ON t.oid = used.type AND t.typtype = 'c'
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0
    WHERE used.table_id = given.id
) AS attributes ON true
