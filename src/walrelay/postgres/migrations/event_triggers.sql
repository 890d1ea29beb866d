REVOKE ALL ON FUNCTION
    walrelay.published_schemas(), walrelay.tables_with_types(oid[]), walrelay.tables_of_containers(oid[], oid[]),
    walrelay.reached_tables(oid[], oid[]), walrelay.reached_tables_now(oid[], oid[]),
    walrelay.memberships(oid[]), walrelay.published_tables(oid[], oid[]), walrelay.published_parts(oid),
    walrelay.table_shape(oid), walrelay.table_leaves(oid), walrelay.table_types(oid), walrelay.table_publications(oid),
    walrelay.table_messages(text, oid[], oid[], oid[]), walrelay.relay_ddl()
FROM PUBLIC;

CREATE EVENT TRIGGER walrelay_ddl ON ddl_command_end
WHEN TAG IN (
    'ALTER DOMAIN', 'ALTER INDEX', 'ALTER PUBLICATION', 'ALTER SCHEMA', 'ALTER TABLE', 'ALTER TYPE',
    'CREATE PUBLICATION', 'CREATE SCHEMA', 'CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO'
)
EXECUTE FUNCTION walrelay.relay_ddl();

CREATE EVENT TRIGGER walrelay_drop ON sql_drop EXECUTE FUNCTION walrelay.relay_ddl();

-- Also for sessions that apply another server's changes (session_replication_role = replica).
ALTER EVENT TRIGGER walrelay_ddl ENABLE ALWAYS;
ALTER EVENT TRIGGER walrelay_drop ENABLE ALWAYS;

-- Where the installed version is read from: a role needs no right for it.
COMMENT ON EVENT TRIGGER walrelay_ddl IS 'DDL trigger of walrelay, version 1';
