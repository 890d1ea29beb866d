CREATE SCHEMA IF NOT EXISTS _walrelay;
CREATE TABLE IF NOT EXISTS _walrelay.file (id VARCHAR, made_at TIMESTAMP WITH TIME ZONE);
CREATE TABLE IF NOT EXISTS _walrelay.sources (source_id VARCHAR, "name" VARCHAR);
CREATE TABLE IF NOT EXISTS _walrelay.tables (
    schema_name VARCHAR, table_name VARCHAR, source_oid BIGINT, primary_key VARCHAR[], column_types VARCHAR[],
    row_count BIGINT, snapshot_lsn VARCHAR, copied_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (schema_name, table_name)
);
CREATE TABLE IF NOT EXISTS _walrelay.progress (
    table_id BIGINT, table_name VARCHAR, applied_lsn VARCHAR, copied_lsn VARCHAR, applied_at TIMESTAMP WITH TIME ZONE
);
CREATE TABLE IF NOT EXISTS _walrelay.shapes (
    table_id BIGINT, schema_name VARCHAR, table_name VARCHAR, lsn VARCHAR, version INTEGER,
    columns STRUCT("name" VARCHAR, attnum INTEGER, "type" VARCHAR, added BOOLEAN)[],
    source_types VARCHAR[]
);
ALTER TABLE _walrelay.shapes ADD COLUMN IF NOT EXISTS source_types VARCHAR[];
ALTER TABLE _walrelay.tables ADD COLUMN IF NOT EXISTS source_id VARCHAR;
ALTER TABLE _walrelay.tables ADD COLUMN IF NOT EXISTS pipeline VARCHAR;
ALTER TABLE _walrelay.progress ADD COLUMN IF NOT EXISTS source_id VARCHAR;
ALTER TABLE _walrelay.progress ADD COLUMN IF NOT EXISTS pipeline VARCHAR;
ALTER TABLE _walrelay.shapes ADD COLUMN IF NOT EXISTS source_id VARCHAR;
CREATE VIEW IF NOT EXISTS _walrelay.applied AS
    SELECT applied_lsn, applied_at FROM _walrelay.progress WHERE table_id = 0;
