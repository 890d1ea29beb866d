-- All that any version has installed, but for the schema.
DROP EVENT TRIGGER IF EXISTS walrelay_ddl;
DROP EVENT TRIGGER IF EXISTS walrelay_drop;
DROP FUNCTION IF EXISTS
    walrelay.relay_ddl(), walrelay.table_messages(text, oid[], oid[], oid[]),
    walrelay.table_publications(oid), walrelay.table_types(oid), walrelay.table_leaves(oid), walrelay.table_shape(oid),
    walrelay.published_parts(oid), walrelay.published_tables(oid[], oid[]), walrelay.memberships(oid[]),
    walrelay.reached_tables_now(oid[], oid[]), walrelay.reached_tables(oid[], oid[]),
    walrelay.tables_of_containers(oid[], oid[]), walrelay.tables_with_types(oid[]), walrelay.published_schemas();
