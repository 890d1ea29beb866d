CREATE SCHEMA IF NOT EXISTS _walrelay;
CREATE TABLE IF NOT EXISTS _walrelay.database (id text PRIMARY KEY, made_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS _walrelay.sources (source_id text PRIMARY KEY, name text NOT NULL);
-- Each table: whose it is, how far it has come (written with its rows), and which column is which.
CREATE TABLE IF NOT EXISTS _walrelay.tables (
    source_id text NOT NULL, table_id bigint NOT NULL, schema_name text NOT NULL, table_name text NOT NULL,
    pipeline text, applied_lsn pg_lsn, copied_lsn pg_lsn, applied_at timestamptz,
    shape_lsn pg_lsn, shape_version integer, columns jsonb, key_columns text[],
    row_count bigint, copied_at timestamptz,
    PRIMARY KEY (source_id, table_id)
);
-- How far all tables of a pipeline are together.
CREATE TABLE IF NOT EXISTS _walrelay.progress (
    source_id text NOT NULL, pipeline text NOT NULL, applied_lsn pg_lsn NOT NULL, applied_at timestamptz NOT NULL,
    PRIMARY KEY (source_id, pipeline)
);
