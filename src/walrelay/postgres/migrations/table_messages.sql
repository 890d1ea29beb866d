-- A table as it is now: columns by attribute number, what identifies a row, where the rows are.
CREATE FUNCTION walrelay.table_shape(table_id oid) RETURNS json
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN (
        SELECT json_build_object(
            'id', c.oid::int8, 'schema', n.nspname::text, 'name', c.relname::text, 'kind', c.relkind::text,
            'identity', c.relreplident::text, 'filenode', pg_relation_filenode(c.oid)::int8,
            'persistence', c.relpersistence::text,
            'columns', coalesce((
                SELECT json_agg(json_build_object(
                    'attnum', a.attnum, 'name', a.attname::text, 'type', a.atttypid::int8, 'modifier', a.atttypmod,
                    'not_null', a.attnotnull, 'generated', a.attgenerated::text,
                    'expression', pg_get_expr(d.adbin, d.adrelid), 'dims', a.attndims::int4
                ) ORDER BY a.attnum)
                FROM pg_catalog.pg_attribute a
                LEFT JOIN pg_catalog.pg_attrdef d
                  ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated <> ''
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            ), '[]'),
            'natts', c.relnatts,
            'key', coalesce((
                SELECT json_agg(k.attnum ORDER BY k.place)
                FROM pg_catalog.pg_index i
                CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
                WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND k.place <= i.indnkeyatts
            ), '[]'),
            'identity_key', coalesce((
                SELECT json_agg(k.attnum ORDER BY k.place)
                FROM pg_catalog.pg_index i
                CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
                WHERE i.indrelid = c.oid AND i.indimmediate AND k.place <= i.indnkeyatts
                  AND ((c.relreplident = 'd' AND i.indisprimary)
                       OR (c.relreplident = 'i' AND i.indisreplident AND i.indisvalid))
            ), '[]')
        )
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = table_id
    );
END
$function$;

-- The relations that hold a partitioned table's rows, with their files; null for any other table.
CREATE FUNCTION walrelay.table_leaves(table_id oid) RETURNS json
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = table_id AND c.relkind = 'p') THEN
        RETURN NULL;
    END IF;
    -- Not pg_partition_tree(), which locks every partition.
    RETURN (
        WITH RECURSIVE tree (oid) AS (
            SELECT table_id
          UNION
            SELECT i.inhrelid
            FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending
        )
        SELECT coalesce(
            json_agg(json_build_array(c.oid::int8, pg_relation_filenode(c.oid)::int8) ORDER BY c.oid), '[]'
        )
        FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
        WHERE c.relkind <> 'p'
    );
END
$function$;

-- The enums and composites that a table's columns are made of, by way of arrays, domains, ranges and composites. The
-- server's own types (oids below 16384) never change.
CREATE FUNCTION walrelay.table_types(table_id oid) RETURNS json
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = table_id AND a.attnum > 0 AND a.atttypid >= 16384
    ) THEN
        RETURN '[]';
    END IF;
    RETURN (
        WITH RECURSIVE reachable (oid) AS (
            SELECT a.atttypid FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = table_id AND a.attnum > 0 AND NOT a.attisdropped
          UNION
            SELECT part.oid
            FROM reachable
            JOIN pg_catalog.pg_type t ON t.oid = reachable.oid
            CROSS JOIN LATERAL (
                SELECT t.typelem WHERE t.typelem <> 0 AND t.typlen = -1
              UNION ALL
                SELECT t.typbasetype WHERE t.typtype = 'd'
              UNION ALL
                SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.typtype = 'r' AND r.rngtypid = t.oid
              UNION ALL
                SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE t.typtype = 'm' AND r.rngmultitypid = t.oid
              UNION ALL
                SELECT a.atttypid FROM pg_catalog.pg_attribute a
                WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ) AS part (oid)
            WHERE t.oid >= 16384
        )
        SELECT coalesce(json_agg(json_build_object(
            'id', t.oid::int8, 'name', quote_ident(n.nspname) || '.' || quote_ident(t.typname),
            'labels', CASE WHEN t.typtype = 'e' THEN (
                SELECT coalesce(json_agg(e.enumlabel::text ORDER BY e.enumsortorder), '[]')
                FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid
            ) END,
            'attributes', CASE WHEN t.typtype = 'c' THEN (
                SELECT coalesce(json_agg(
                    json_build_array(a.attnum, a.attname::text, a.atttypid::int8, a.atttypmod) ORDER BY a.attnum
                ), '[]')
                FROM pg_catalog.pg_attribute a
                WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ) END
        ) ORDER BY t.oid), '[]')
        FROM reachable
        JOIN pg_catalog.pg_type t ON t.oid = reachable.oid
        JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        WHERE t.typtype IN ('e', 'c') AND t.oid >= 16384
    );
END
$function$;

-- The publications that a table belongs to. `generated` is Postgres 18's publish_generated_columns.
CREATE FUNCTION walrelay.table_publications(table_id oid) RETURNS json
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN (
        SELECT coalesce(json_agg(json_build_object(
            'name', p.pubname::text, 'insert', p.pubinsert, 'update', p.pubupdate, 'delete', p.pubdelete,
            'truncate', p.pubtruncate, 'via_root', p.pubviaroot,
            'generated', coalesce(to_jsonb(p) ->> 'pubgencols', 'n'),
            'filter', part.filter,
            'columns', (SELECT json_agg(a.attnum ORDER BY a.attnum) FROM unnest(part.columns) AS a (attnum))
        ) ORDER BY p.pubname), '[]')
        FROM walrelay.memberships(ARRAY[table_id]) m
        JOIN pg_catalog.pg_publication p ON p.oid = m.publication
        LEFT JOIN walrelay.published_parts(table_id) part ON part.publication = p.oid
    );
END
$function$;

-- The messages on those tables that were published before the command (published), or are so after it.
CREATE FUNCTION walrelay.table_messages(tag text, tables oid[], named oid[], published oid[]) RETURNS bytea[]
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    concerned oid[] := published || walrelay.published_tables(tables, named);
BEGIN
    IF coalesce(cardinality(concerned), 0) = 0 THEN
        RETURN NULL;
    END IF;
    -- The snapshot of such a transaction is older than what others have committed to the catalog meanwhile.
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RETURN ARRAY[convert_to(json_build_object('v', 1, 'tag', tag, 'failed', '25004')::text, 'UTF8')];
    END IF;
    RETURN (
        SELECT array_agg(convert_to(json_build_object(
            'v', 1, 'tag', tag, 'table', walrelay.table_shape(c.oid), 'leaves', walrelay.table_leaves(c.oid),
            'types', walrelay.table_types(c.oid), 'publications', walrelay.table_publications(c.oid)
        )::text, 'UTF8') ORDER BY c.oid)
        FROM pg_catalog.pg_class c
        WHERE c.oid = ANY (concerned)
    );
END
$function$;
