"""What happens to the tables that destinations are given: each story ends in what the source then holds."""

from __future__ import annotations

from walrelay.model.special import Special

TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, note text, paid numeric(8, 2));
CREATE TABLE loose (n int, note text);
ALTER TABLE loose REPLICA IDENTITY FULL;
CREATE TABLE paired (a int, b text, note text, PRIMARY KEY (a, b));
CREATE TABLE coded (id int PRIMARY KEY, code text NOT NULL UNIQUE, note text);
ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_code_key;
CREATE PUBLICATION contract FOR TABLE keyed, loose, paired, coded;
"""
NAMES = ("keyed", "loose", "paired", "coded")
LONG = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 500) g)"
STORIES = {
    "inserts": ["INSERT INTO keyed SELECT g, 'n' || g, g FROM generate_series(1, 50) g"],
    "updates and deletes": [
        "INSERT INTO keyed SELECT g, 'n' || g, NULL FROM generate_series(1, 20) g",
        "UPDATE keyed SET note = 'changed' WHERE id % 2 = 0",
        "DELETE FROM keyed WHERE id % 3 = 0",
        "INSERT INTO keyed VALUES (6, 'again', 1.5)",
    ],
    "keys that move": [
        "INSERT INTO keyed SELECT g, 'n' || g, g FROM generate_series(1, 9) g",
        "UPDATE keyed SET id = id + 100 WHERE id < 4",
        "UPDATE keyed SET id = 1 WHERE id = 9",
        "UPDATE paired SET a = -a",
        "INSERT INTO paired VALUES (1, 'x', 'one'), (1, 'y', 'two')",
        "UPDATE paired SET b = b || '!', note = NULL WHERE b = 'x'",
    ],
    "rows that are named by another index than the primary key": [
        "INSERT INTO coded VALUES (1, 'a', 'one'), (2, 'b', 'two'), (3, 'c', 'three')",
        "UPDATE coded SET id = id + 10",
        "UPDATE coded SET code = 'd', id = 1 WHERE id = 13",
        "DELETE FROM coded WHERE id = 12",
    ],
    "keys that change places": [
        "INSERT INTO keyed VALUES (1, 'one', 1), (2, 'two', 2)",
        "UPDATE keyed SET id = 0 WHERE id = 1; UPDATE keyed SET id = 1 WHERE id = 2;"
        " UPDATE keyed SET id = 2 WHERE id = 0",
    ],
    "truncates": [
        "INSERT INTO keyed VALUES (1, 'before', 1)",
        "INSERT INTO loose VALUES (1, 'before')",
        "TRUNCATE keyed, loose",
        "INSERT INTO keyed VALUES (1, 'after', 2)",
    ],
    "values that are not sent again": [
        f"INSERT INTO keyed VALUES (1, {LONG}, 1), (2, {LONG}, 2)",
        "UPDATE keyed SET paid = paid + 1",
        "UPDATE keyed SET id = id + 10 WHERE id = 2",
        "UPDATE keyed SET paid = 7 WHERE id = 12",
    ],
    "equal rows without a key": [
        "INSERT INTO loose SELECT 1, 'same' FROM generate_series(1, 5)",
        "DELETE FROM loose WHERE ctid IN (SELECT ctid FROM loose LIMIT 2)",
        "UPDATE loose SET note = NULL WHERE ctid IN (SELECT ctid FROM loose LIMIT 1)",
        "INSERT INTO loose VALUES (NULL, NULL), (1, 'same')",
        "DELETE FROM loose WHERE n IS NULL",
    ],
    "several tables in a transaction": [
        "BEGIN; INSERT INTO keyed VALUES (1, 'a', 1); INSERT INTO loose VALUES (1, 'a'); DELETE FROM keyed; COMMIT",
        "BEGIN; INSERT INTO paired VALUES (1, 'a', 'b'); SAVEPOINT s; DELETE FROM paired; ROLLBACK TO s; COMMIT",
        "BEGIN; INSERT INTO keyed VALUES (5, 'never', 1); ROLLBACK",
    ],
}

ALTERED = [
    "INSERT INTO keyed VALUES (1, 'a', 1), (2, 'b', 2), (8, 'f', 8)",
    "UPDATE keyed SET id = 9 WHERE id = 8",
    "ALTER TABLE keyed ADD COLUMN more int; INSERT INTO keyed VALUES (3, 'c', 3, 4)",
    "ALTER TABLE keyed RENAME COLUMN note TO words; UPDATE keyed SET words = 'd', more = 1 WHERE id = 1",
    "ALTER TABLE keyed DROP COLUMN paid; INSERT INTO keyed VALUES (4, 'e', 5); DELETE FROM keyed WHERE id = 2",
]

SPECIAL_TABLES = """
CREATE TABLE special
    (id int PRIMARY KEY, at timestamptz, local timestamp, day date, price numeric(8, 2), took interval);
ALTER TABLE special REPLICA IDENTITY FULL;
CREATE TABLE by_day (day date PRIMARY KEY, n int);
CREATE TABLE by_length (took interval PRIMARY KEY, n int);
CREATE TABLE plain (id int PRIMARY KEY);
CREATE PUBLICATION contract FOR TABLE special, by_day, by_length, plain;
"""
SPECIAL_NAMES = ("special", "by_day", "by_length", "plain")
SPECIALS = {
    "at": Special.TIMESTAMP_INFINITY,
    "local": Special.TIMESTAMP_INFINITY,
    "day": Special.DATE_INFINITY,
    "price": Special.NUMERIC_NAN,
    "took": Special.INTERVAL_INFINITY,
}
"""What the columns of `special` hold that other types may not be able to."""
SPECIAL_ROWS = """
INSERT INTO special VALUES
    ({0}, 'infinity', '-infinity', 'infinity', 'NaN', 'infinity'),
    ({0} + 1, '2026-01-02', '2026-01-03', '2026-01-04', 5, '1 day'),
    ({0} + 2, '-infinity', '2026-01-05', '-infinity', 6, '-infinity'),
    ({0} + 3, NULL, NULL, NULL, NULL, NULL)
"""
"""From this id on, beside values that all types hold."""

LONGEST = "ä" * 31 + "z"
"""63 bytes, as many as a name of Postgres can have."""
ODD_TABLES = (
    'public."it\'s ""so"" called"',
    '"Odd ""Schema"" /"."A.b/c ;--"',
    'public."Größe 漢字 `x` {1} %s $1 \\ ~20"',
    "public.order",
    'public."Twin"',
    "public.twin",
    f'public."{LONGEST}"',
    'public."_Begins with a line"',
)
"""As Postgres writes them."""
ODD_COLUMNS = ('Ka"se', "select", "a.b c", "größe;--", "x, y=(1) {}", "row", "op", LONGEST, "`tick` 'q' \\")
"""Of each of them; the first is the key."""
ODD_RENAMED = 'public."Now .""other"" thän"'
