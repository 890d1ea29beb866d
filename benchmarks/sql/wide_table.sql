-- EXTERNAL: kept out of line and not compressed, so that the table is as large as its text.
CREATE TABLE wide (
    id bigint PRIMARY KEY,
    a text STORAGE EXTERNAL,
    b text STORAGE EXTERNAL,
    c text STORAGE EXTERNAL,
    d text STORAGE EXTERNAL,
    e text STORAGE EXTERNAL
);
CREATE PUBLICATION wide FOR TABLE wide;
-- Making 2 kB of random text takes longer than storing it: the rows share some, each behind a beginning of its own.
CREATE UNLOGGED TABLE pool AS
SELECT n, (SELECT string_agg(md5(n || ' ' || part), '') FROM generate_series(1, 61) AS part) AS text
FROM generate_series(0, 996) AS n;
ANALYZE pool
