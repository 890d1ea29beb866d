-- The tables of the workload. Every value's text can be told exactly from the Python value that walrelay gives for it.

CREATE TABLE items (
    id bigint PRIMARY KEY, label text, amount int NOT NULL, price numeric(12, 2), active boolean, moment timestamptz,
    token uuid, tags int[], doc jsonb, body text
);
CREATE TABLE pairs (a int, b text, amount int NOT NULL, body text, PRIMARY KEY (a, b));
-- Rows may be equal: an update or a delete takes exactly one of them.
CREATE TABLE loose (label text, amount int, price numeric(12, 2), body text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE coded (id bigint PRIMARY KEY, code text NOT NULL, amount int NOT NULL, active boolean, body text);
CREATE UNIQUE INDEX coded_code ON coded (code);
ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_code;
-- Only inserted into; a client's n are 1, 2, 3, … in the order of its commits.
CREATE TABLE ledger (client int NOT NULL, n bigint NOT NULL, moment timestamptz NOT NULL, note text);
CREATE INDEX ledger_client_n ON ledger (client, n);
-- The balances of both together always have the same sum.
CREATE TABLE accounts_a (id int PRIMARY KEY, balance numeric(12, 2) NOT NULL);
CREATE TABLE accounts_b (id int PRIMARY KEY, balance numeric(12, 2) NOT NULL);
CREATE TABLE readings (
    id bigint, region int, amount int NOT NULL, moment timestamptz, body text, PRIMARY KEY (id, region)
) PARTITION BY LIST (region);
CREATE TABLE readings_0 PARTITION OF readings FOR VALUES IN (0);
CREATE TABLE readings_1 PARTITION OF readings FOR VALUES IN (1, 2);
-- Its columns stand in another order, and one is gone.
CREATE TABLE readings_rest (
    body text, gone text, region int NOT NULL, moment timestamptz, id bigint NOT NULL, amount int NOT NULL
);
ALTER TABLE readings_rest DROP COLUMN gone;
ALTER TABLE readings ATTACH PARTITION readings_rest DEFAULT;
CREATE TABLE marks (id bigint PRIMARY KEY, client int NOT NULL, moment timestamptz NOT NULL, insert_lsn text NOT NULL);
CREATE SEQUENCE workload_marks;

-- An exception block is a subtransaction; `fails` rolls it back.
CREATE FUNCTION workload_attempt(item bigint, fails boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO items (id, amount, label) VALUES (item, 0, 'attempt') ON CONFLICT (id) DO UPDATE SET label = 'attempt';
    BEGIN
        UPDATE items SET amount = amount + 1000, body = 'attempted' WHERE id = item;
        IF fails THEN
            RAISE EXCEPTION 'rolled back on purpose';
        END IF;
    EXCEPTION WHEN raise_exception THEN
        UPDATE items SET label = 'failed' WHERE id = item;
    END;
END $$;

-- One step in the life of a table's extra column, if that step is possible now. An added column has a name that was
-- never used before: a log that gives columns by name cannot tell one dropped and added again from one untouched.
CREATE FUNCTION workload_ddl(target regclass, kind text, value int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    extra name;
    fresh name;
BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', target);
    SELECT attname INTO extra FROM pg_attribute
        WHERE attrelid = target AND attnum > 0 AND NOT attisdropped AND attname ~ '^(extra|renamed)_';
    SELECT 'extra_' || max(attnum) + 1 INTO fresh FROM pg_attribute WHERE attrelid = target;
    IF extra IS NULL AND kind IN ('add', 'add_default') THEN
        EXECUTE format('ALTER TABLE %s ADD COLUMN %I int', target, fresh)
            || CASE kind WHEN 'add_default' THEN format(' DEFAULT %s', value) ELSE '' END;
        EXECUTE format('UPDATE %s SET %I = %s WHERE amount %% 3 = 0', target, fresh, value + 1);
    ELSIF extra IS NOT NULL AND kind = 'rename' THEN
        EXECUTE format('ALTER TABLE %s RENAME COLUMN %I TO %I', target, extra,
            CASE WHEN extra LIKE 'extra%' THEN replace(extra, 'extra', 'renamed') ELSE replace(extra, 'renamed', 'extra') END);
    ELSIF extra IS NOT NULL AND kind = 'widen' THEN
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint', target, extra);
    ELSIF extra IS NOT NULL AND kind = 'drop' THEN
        EXECUTE format('ALTER TABLE %s DROP COLUMN %I', target, extra);
    END IF;
END $$;
