-- Tables in a schema by publication; the catalog has them from Postgres 15 on.
CREATE FUNCTION walrelay.published_schemas() RETURNS TABLE (id oid, publication oid, schema oid)
LANGUAGE plpgsql STABLE AS $function$
BEGIN
    IF current_setting('server_version_num')::int4 >= 150000 THEN
        RETURN QUERY SELECT n.oid, n.pnpubid, n.pnnspid FROM pg_catalog.pg_publication_namespace n;
    END IF;
END
$function$;

-- The tables that have a column of these types: also through arrays, domains, ranges, composites and rows of tables.
-- A loop and no recursive query: of that the planner expects so much that it reads all of pg_depend.
CREATE FUNCTION walrelay.tables_with_types(types oid[]) RETURNS oid[]
LANGUAGE plpgsql STABLE AS $function$
DECLARE
    seen oid[] := types;
    next oid[] := types;
    relations oid[];
    rows oid[];
    tables oid[];
BEGIN
    LOOP
        SELECT array_agg(d.objid) FILTER (WHERE d.classid = 'pg_catalog.pg_type'::regclass),
               array_agg(d.objid) FILTER (WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objsubid > 0)
        INTO next, relations
        FROM pg_catalog.pg_depend d
        WHERE d.refclassid = 'pg_catalog.pg_type'::regclass AND d.refobjid = ANY (next);
        IF relations IS NOT NULL THEN
            SELECT array_agg(c.reltype), tables || array_agg(c.oid) FILTER (WHERE c.relkind <> 'c')
            INTO rows, tables
            FROM pg_catalog.pg_class c
            WHERE c.oid = ANY (relations) AND c.relkind IN ('r', 'p', 'c');
            next := next || rows;
        END IF;
        next := ARRAY(SELECT unnest(next) EXCEPT SELECT unnest(seen));
        EXIT WHEN next = '{}';
        seen := seen || next;
    END LOOP;
    RETURN tables;
END
$function$;

-- The tables that publications and schemas among the objects hold.
CREATE FUNCTION walrelay.tables_of_containers(classes oid[], objects oid[]) RETURNS oid[]
LANGUAGE plpgsql STABLE AS $function$
DECLARE
    schemas oid[];
BEGIN
    IF EXISTS (
        SELECT FROM unnest(classes, objects) AS o (class, id)
        JOIN pg_catalog.pg_publication p ON p.oid = o.id AND p.puballtables
        WHERE o.class = 'pg_catalog.pg_publication'::regclass
    ) THEN
        RETURN (SELECT array_agg(c.oid) FROM pg_catalog.pg_class c
                WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND c.oid >= 16384);
    END IF;
    SELECT array_agg(s.schema) INTO schemas
    FROM unnest(classes, objects) AS o (class, id)
    CROSS JOIN LATERAL (
        SELECT o.id AS schema WHERE o.class = 'pg_catalog.pg_namespace'::regclass
      UNION ALL
        SELECT n.schema FROM walrelay.published_schemas() n
        WHERE (o.class = 'pg_catalog.pg_publication'::regclass AND n.publication = o.id)
           OR (o.class = to_regclass('pg_catalog.pg_publication_namespace') AND n.id = o.id)
    ) AS s;
    RETURN (
        SELECT array_agg(found.oid) FROM (
            SELECT r.prrelid AS oid
            FROM unnest(classes, objects) AS o (class, id)
            JOIN pg_catalog.pg_publication_rel r ON r.prpubid = o.id
            WHERE o.class = 'pg_catalog.pg_publication'::regclass
          UNION ALL
            SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relnamespace = ANY (schemas) AND c.relkind IN ('r', 'p')
        ) AS found
    );
END
$function$;

-- Which tables a command touches, as the catalog stands in the caller's snapshot. named: those it names, itself or by
-- an index that identifies rows; below: these and what inherits from them; others: what holds or uses them.
CREATE FUNCTION walrelay.reached_tables(
    classes oid[], objects oid[], OUT named oid[], OUT below oid[], OUT others oid[]
)
LANGUAGE plpgsql STABLE AS $function$
DECLARE
    types oid[];
    seeds oid[];
BEGIN
    SELECT array_agg(DISTINCT coalesce(i.indrelid, c.oid)) FILTER (WHERE c.relkind IN ('r', 'p', 'i', 'I')),
           array_agg(c.reltype) FILTER (WHERE c.relkind IN ('r', 'p', 'c'))
    INTO named, types
    FROM unnest(classes, objects) AS o (class, id)
    JOIN pg_catalog.pg_class c ON c.oid = o.id
    LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid AND (i.indisprimary OR i.indisreplident)
    WHERE o.class = 'pg_catalog.pg_class'::regclass
      AND (c.relkind IN ('r', 'p', 'c') OR i.indrelid IS NOT NULL);
    IF 'pg_catalog.pg_publication_rel'::regclass = ANY (classes) THEN
        named := named || (
            SELECT array_agg(r.prrelid)
            FROM unnest(classes, objects) AS o (class, id)
            JOIN pg_catalog.pg_publication_rel r ON r.oid = o.id
            WHERE o.class = 'pg_catalog.pg_publication_rel'::regclass
        );
    END IF;
    IF 'pg_catalog.pg_type'::regclass = ANY (classes) THEN
        types := types || (
            SELECT array_agg(o.id) FROM unnest(classes, objects) AS o (class, id)
            WHERE o.class = 'pg_catalog.pg_type'::regclass
        );
    END IF;
    IF types IS NOT NULL THEN
        seeds := walrelay.tables_with_types(types);
    END IF;
    IF classes && ARRAY['pg_catalog.pg_publication', 'pg_catalog.pg_namespace']::regclass[]::oid[]
       OR to_regclass('pg_catalog.pg_publication_namespace') = ANY (classes) THEN
        seeds := seeds || walrelay.tables_of_containers(classes, objects);
    END IF;
    WITH RECURSIVE down (oid) AS (
        SELECT unnest(named)
      UNION
        SELECT i.inhrelid FROM down JOIN pg_catalog.pg_inherits i ON i.inhparent = down.oid
    )
    SELECT array_agg(down.oid) INTO below FROM down;
    WITH RECURSIVE up (oid) AS (
        SELECT unnest(named)
      UNION
        SELECT i.inhparent FROM up JOIN pg_catalog.pg_inherits i ON i.inhrelid = up.oid
    ), down (oid) AS (
        SELECT unnest(seeds)
      UNION
        SELECT i.inhrelid FROM down JOIN pg_catalog.pg_inherits i ON i.inhparent = down.oid
    )
    SELECT array_agg(found.oid) INTO others FROM (SELECT up.oid FROM up UNION SELECT down.oid FROM down) AS found;
END
$function$;

-- The same as the catalog stands now. Only a function that is not STABLE sees what the command has done.
CREATE FUNCTION walrelay.reached_tables_now(
    classes oid[], objects oid[], OUT named oid[], OUT below oid[], OUT others oid[]
)
LANGUAGE plpgsql VOLATILE AS $function$
BEGIN
    SELECT r.named, r.below, r.others INTO named, below, others
    FROM walrelay.reached_tables(classes, objects) AS r;
END
$function$;
