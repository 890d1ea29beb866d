-- Says in the stream, in the transaction of the command, what became of the published tables that it touched.
--
-- STABLE, so that its own queries see the catalog as it was before the command: only there is written what a dropped
-- partition was part of, or which tables a dropped publication held. What it calls VOLATILE sees what the command did.
--
-- It runs with its owner's rights, since whoever runs DDL need not have any on this schema, and reads nothing but the
-- catalog. The settings keep a session's own from showing in the messages, and the trigger from waiting for locks.
CREATE FUNCTION walrelay.relay_ddl() RETURNS event_trigger
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
SET jit = off
SET plan_cache_mode = force_generic_plan
SET quote_all_identifiers = off
SET DateStyle = 'ISO'
SET IntervalStyle = 'postgres'
SET TimeZone = 'UTC'
SET extra_float_digits = 1
AS $function$
DECLARE
    classes oid[];
    objects oid[];
    before record;
    after record;
    named oid[];
    tables oid[];
    published oid[];
    contents bytea[];
BEGIN
    BEGIN
        IF tg_event = 'ddl_command_end' THEN
            SELECT array_agg(c.classid), array_agg(c.objid) INTO classes, objects
            FROM pg_event_trigger_ddl_commands() c
            WHERE c.schema_name IS DISTINCT FROM 'pg_temp';
        ELSIF tg_tag NOT IN ('ALTER TABLE', 'ALTER TYPE') THEN  -- what these drop is part of what they name
            SELECT array_agg(d.classid), array_agg(d.objid) INTO classes, objects
            FROM pg_event_trigger_dropped_objects() d
            WHERE NOT d.is_temporary AND d.classid IN (
                'pg_catalog.pg_class'::regclass, 'pg_catalog.pg_publication'::regclass,
                'pg_catalog.pg_publication_rel'::regclass, to_regclass('pg_catalog.pg_publication_namespace')
            );
        END IF;
        IF objects IS NULL OR (
            NOT 'pg_catalog.pg_publication'::regclass = ANY (classes)
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication)
        ) THEN
            RETURN;
        END IF;
        before := walrelay.reached_tables(classes, objects);
        after := walrelay.reached_tables_now(classes, objects);
        tables := before.below || before.others || after.below || after.others;
        -- What was attached or detached stands below the named ones on one side only.
        named := before.named || after.named
            || ARRAY(SELECT unnest(before.below) EXCEPT SELECT unnest(after.below))
            || ARRAY(SELECT unnest(after.below) EXCEPT SELECT unnest(before.below));
        published := walrelay.published_tables(tables, named);
        IF tg_event = 'sql_drop' AND published IS NOT NULL THEN
            SELECT array_agg(convert_to(json_build_object('v', 1, 'tag', tg_tag, 'dropped', json_build_object(
                'id', d.objid::int8, 'schema', d.schema_name, 'name', d.object_name
            ))::text, 'UTF8') ORDER BY d.objid)
            INTO contents
            FROM pg_event_trigger_dropped_objects() d
            WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objsubid = 0 AND d.objid = ANY (published);
        END IF;
        contents := contents || walrelay.table_messages(tg_tag, tables, named, published);
    EXCEPTION WHEN OTHERS THEN
        contents := ARRAY[convert_to(json_build_object('v', 1, 'tag', tg_tag, 'failed', SQLSTATE)::text, 'UTF8')];
    END;
    -- Outside of the block: within it each command would cost a subtransaction's number.
    PERFORM pg_logical_emit_message(true, 'walrelay.ddl', m.content) FROM unnest(contents) AS m (content);
END
$function$;
