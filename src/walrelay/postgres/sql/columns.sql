-- The columns of a table, in order, with their place in the primary key.
SELECT a.attnum, a.attname::text AS name, a.atttypid::int8 AS type, a.atttypmod AS modifier,
       a.attndims::int4 AS dimensions, a.attnotnull AS not_null, a.attgenerated::text AS generated,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS display,
       array_position(i.indkey::int2[], a.attnum) AS key_place
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
