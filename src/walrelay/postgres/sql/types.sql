-- Every type reachable from the given ones: elements, bases, range bounds, attributes.
WITH RECURSIVE reachable(oid) AS (
    SELECT unnest(%(oids)s::oid[])
  UNION
    SELECT part.oid
    FROM reachable
    JOIN pg_catalog.pg_type t ON t.oid = reachable.oid
    CROSS JOIN LATERAL (
        SELECT t.typelem WHERE t.typelem <> 0 AND t.typlen = -1
      UNION ALL
        SELECT t.typbasetype WHERE t.typtype = 'd'
      UNION ALL
        SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
      UNION ALL
        SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE r.rngmultitypid = t.oid
      UNION ALL
        SELECT a.atttypid FROM pg_catalog.pg_attribute a
        WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS part(oid)
)
SELECT t.oid::int8 AS oid, t.typname AS name, n.nspname AS schema, t.typtype::text AS typtype,
       t.typcategory::text AS category, t.typlen AS length, t.typelem::int8 AS element,
       t.typbasetype::int8 AS base, t.typtypmod AS base_modifier, t.typndims AS base_dimensions,
       t.typsend::oid <> 0 AS has_binary,
       x.extname AS extension,
       sub.rngsubtype::int8 AS bound, multi.rngtypid::int8 AS range,
       attributes.names, attributes.types, attributes.modifiers, attributes.dimensions
FROM reachable
JOIN pg_catalog.pg_type t USING (oid)
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_depend d
  ON d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
LEFT JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid
LEFT JOIN pg_catalog.pg_range sub ON sub.rngtypid = t.oid
LEFT JOIN pg_catalog.pg_range multi ON multi.rngmultitypid = t.oid
LEFT JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY a.attnum) AS names,
           array_agg(a.atttypid::int8 ORDER BY a.attnum) AS types,
           array_agg(a.atttypmod ORDER BY a.attnum) AS modifiers,
           array_agg(a.attndims::int4 ORDER BY a.attnum) AS dimensions
    FROM pg_catalog.pg_attribute a
    WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
) AS attributes ON true
