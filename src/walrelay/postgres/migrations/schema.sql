-- A home for the functions. One of them runs with the rights of whoever installs it, and calls the others by name: a
-- schema whose owner is another ordinary role will not do, since that role could put functions of its own in their place.
DO $do$
BEGIN
    IF to_regnamespace('walrelay') IS NULL THEN
        CREATE SCHEMA walrelay;
        COMMENT ON SCHEMA walrelay IS 'made for the DDL trigger of walrelay';
    ELSIF NOT EXISTS (
        SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
        WHERE n.nspname = 'walrelay' AND (r.rolsuper OR r.rolname = current_user)
    ) THEN
        RAISE EXCEPTION 'the schema walrelay belongs to another role' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$do$;
