-- The publications of each table: by itself, by its schema, through a parent that it is a partition of, or with all.
-- `above` is how many steps up the topmost table lies that a publication holds; 0 is the table itself.
CREATE FUNCTION walrelay.memberships(tables oid[]) RETURNS TABLE (id oid, publication oid, above int4)
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN QUERY
    WITH RECURSIVE chain (id, step, ancestor, partition, schema) AS (
        SELECT c.oid, 0, c.oid, c.relispartition, c.relnamespace
        FROM unnest(tables) AS t (oid)
        JOIN pg_catalog.pg_class c ON c.oid = t.oid
        WHERE c.relpersistence = 'p' AND c.relkind IN ('r', 'p') AND c.oid >= 16384
      UNION ALL
        SELECT chain.id, chain.step + 1, c.oid, c.relispartition, c.relnamespace
        FROM chain
        JOIN pg_catalog.pg_inherits i ON i.inhrelid = chain.ancestor AND NOT i.inhdetachpending
        JOIN pg_catalog.pg_class c ON c.oid = i.inhparent
        WHERE chain.partition
    ), held (id, publication, step) AS (
        SELECT chain.id, r.prpubid, chain.step
        FROM chain JOIN pg_catalog.pg_publication_rel r ON r.prrelid = chain.ancestor
      UNION ALL
        SELECT chain.id, s.publication, chain.step
        FROM chain JOIN walrelay.published_schemas() s ON s.schema = chain.schema
      UNION ALL
        SELECT chain.id, p.oid, chain.step FROM chain JOIN pg_catalog.pg_publication p ON p.puballtables
    )
    SELECT held.id, held.publication, max(held.step) FROM held GROUP BY held.id, held.publication;
END
$function$;

-- Of the tables those that matter to a reader of some publication: rows are sent under their name, or they are the
-- topmost that the publication holds. Of the named ones also partitions whose rows are sent as their parent's.
CREATE FUNCTION walrelay.published_tables(tables oid[], named oid[]) RETURNS oid[]
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    RETURN (
        SELECT array_agg(DISTINCT m.id)
        FROM walrelay.memberships(tables) m
        JOIN pg_catalog.pg_class c ON c.oid = m.id
        JOIN pg_catalog.pg_publication p ON p.oid = m.publication
        WHERE m.above = 0 OR (c.relkind = 'r' AND NOT p.pubviaroot) OR m.id = ANY (named)
    );
END
$function$;

-- What publications say of a table by name; the catalog has row filters and column lists from Postgres 15 on.
CREATE FUNCTION walrelay.published_parts(table_id oid) RETURNS TABLE (publication oid, filter text, columns int2[])
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    IF current_setting('server_version_num')::int4 >= 150000 THEN
        RETURN QUERY
        SELECT r.prpubid, pg_get_expr(r.prqual, r.prrelid), r.prattrs::int2[]
        FROM pg_catalog.pg_publication_rel r
        JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
        -- A publication that holds the whole schema too sends all of it.
        WHERE r.prrelid = table_id AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_publication_namespace n
            WHERE n.pnpubid = r.prpubid AND n.pnnspid = c.relnamespace
        );
    END IF;
END
$function$;
