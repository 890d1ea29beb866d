-- The schema goes if it was made for the trigger and nothing else has moved in, such as a pipeline's store.
DO $do$
BEGIN
    IF obj_description(to_regnamespace('walrelay')::oid, 'pg_namespace') = 'made for the DDL trigger of walrelay' THEN
        IF EXISTS (
            SELECT FROM pg_catalog.pg_depend d
            WHERE d.refclassid = 'pg_catalog.pg_namespace'::regclass AND d.refobjid = to_regnamespace('walrelay')
        ) THEN
            COMMENT ON SCHEMA walrelay IS NULL;
        ELSE
            DROP SCHEMA walrelay;
        END IF;
    END IF;
END
$do$;
