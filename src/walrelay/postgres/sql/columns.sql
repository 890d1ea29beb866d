-- The columns of a table, in order, with their place in the primary key, and in the index that is its replica identity.
-- A key tells rows apart only if it holds after every single change: not one that is deferrable (two rows may have it
-- within a statement), nor one whose index is not valid. Columns that its index merely includes are no part of it.
-- `filled`: rows that were there before the column was may hold something in it that no change has brought. They do with
-- a default (also one that was taken away since: then it is kept as the missing value), and when a publication names the
-- columns it sends: one that is named later was there all the time. Before 15 there are no such lists.
SELECT a.attnum, a.attname::text AS name, a.atttypid::int8 AS type, a.atttypmod AS modifier,
       a.attndims::int4 AS dimensions, a.attnotnull AS not_null, a.attgenerated::text AS generated,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS display,
       array_position((i.indkey::int2[])[0:i.indnkeyatts - 1], a.attnum) AS key_place,
       c.relreplident::text AS identity,
       array_position((r.indkey::int2[])[0:r.indnkeyatts - 1], a.attnum) AS identity_place,
       a.atthasmissing OR a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL OR EXISTS (
           SELECT FROM pg_catalog.pg_publication_rel r
           WHERE r.prrelid = a.attrelid AND to_jsonb(r) ->> 'prattrs' IS NOT NULL
       ) AS filled
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND i.indimmediate
    AND i.indisvalid AND i.indisready AND i.indislive
LEFT JOIN pg_catalog.pg_index r ON r.indrelid = a.attrelid AND r.indisreplident AND c.relreplident = 'i'
    AND r.indimmediate AND r.indisvalid AND r.indisready AND r.indislive
WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
