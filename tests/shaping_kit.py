"""Tables with options of every kind, what happens to them, and what a destination must hold then."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit

from walrelay.model.table_options import Hash, KeepLast, Rename, TableOptions, WithConstant, WithNull

Rows = Counter[tuple[Any, ...]]
Read = Callable[[str, str], Rows]
"""Of a table of the schema public, the columns named."""

TABLES = """
CREATE TABLE people (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text, email text, card text, score int,
    pin int, secret text, body text);
ALTER TABLE people ALTER body SET STORAGE EXTERNAL;
CREATE TABLE accounts (id int PRIMARY KEY, owner text, body text);
ALTER TABLE accounts ALTER body SET STORAGE EXTERNAL;
CREATE TABLE moves (id int PRIMARY KEY, at_place text);
ALTER TABLE moves REPLICA IDENTITY FULL;
CREATE TABLE notes (id int PRIMARY KEY, n int, title text, body text);
ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;
CREATE TABLE hidden (id int PRIMARY KEY);
CREATE PUBLICATION p FOR TABLE people, accounts, moves, notes, hidden;
INSERT INTO people (name, email, card, score, pin, secret, body)
    SELECT 'n' || g, 'mail' || g || '@example.com', '4000' || g, g, 1234, 'hush', repeat(md5(g::text), 200)
    FROM generate_series(1, 30) g;
INSERT INTO accounts SELECT g, 'o' || g, repeat(md5(g::text), 200) FROM generate_series(1, 10) g;
INSERT INTO moves SELECT g, 'home' FROM generate_series(1, 3) g;
INSERT INTO notes SELECT g, g, 't' || g, repeat(md5(g::text), 200) FROM generate_series(1, 10) g;
"""
CHANGES = """
UPDATE people SET email = 'new' || email, card = NULL WHERE name LIKE '%3';
DELETE FROM people WHERE name LIKE '%4';
INSERT INTO people (name, card) VALUES ('é', '7');
UPDATE people SET id = gen_random_uuid() WHERE name LIKE '%5';
UPDATE accounts SET owner = 'p' WHERE id = 2;
DELETE FROM accounts WHERE id IN (1, 2);
DELETE FROM accounts WHERE id = 3;
INSERT INTO accounts VALUES (3, 'again', 'short');
UPDATE moves SET at_place = 'sea' WHERE id = 1;
DELETE FROM moves WHERE id = 2;
UPDATE notes SET n = n * 2 WHERE id < 6;
UPDATE notes SET n = 0, body = 'short' WHERE id = 9;
DELETE FROM notes WHERE id = 8;
INSERT INTO hidden VALUES (1);
"""


def noted(rows: DataFrame) -> DataFrame:
    return (
        rows.withColumn("n", col("n") + 1).withColumn("kind", lit("note")).withColumn("m", col("id") * 2).drop("title")
    )


OPTIONS = {
    "people": TableOptions(
        rename=Rename(table="persons", columns={"name": "full_name"}),
        leave_out=("secret",),
        hash=Hash(("id", "email", "score"), salt="pepper"),
        mask={"card": KeepLast(2), "pin": WithNull()},
    ),
    "accounts": TableOptions(soft_deletes=True, mask={"owner": WithConstant("somebody")}),
    "moves": TableOptions(history="changes"),
    "hidden": TableOptions(include=False),
}
FUNCTIONS = {"notes": noted}


def digest(value: str | None) -> str | None:
    return None if value is None else hashlib.sha256(f"pepper{value}".encode()).hexdigest()


def last_two(value: str | None) -> str | None:
    return None if value is None else "*" * len(value) if len(value) <= 2 else "*" * (len(value) - 2) + value[-2:]


def change(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as source:
        for statement in CHANGES.strip().split(";\n"):
            source.execute(statement.encode())


def assert_shaped(url: str, read: Read, *, changed: bool) -> None:
    """Whether the destination holds what the options make of the source's rows, before or after the changes."""
    with psycopg.connect(url) as source:
        people = source.execute("SELECT id::text, name, email, card, score::text, body FROM people").fetchall()
        accounts = source.execute("SELECT id, 'somebody', body, false FROM accounts").fetchall()
        gone = source.execute("SELECT g, 'somebody', repeat(md5(g::text), 200), true FROM generate_series(1, 2) g")
        kept = gone.fetchall() if changed else []
        notes = source.execute("SELECT id, n + 1, 'note', id * 2, body FROM notes").fetchall()
    wanted = [(digest(i), n, digest(e), last_two(c), digest(s), None, b) for i, n, e, c, s, b in people]
    assert read("persons", "id, full_name, email, card, score, pin, body") == Counter(wanted)
    assert read("accounts", "id, owner, body, _walrelay_deleted") == Counter([*accounts, *kept])
    history = [(1, "home", "copy"), (2, "home", "copy"), (3, "home", "copy")]
    history += [(1, "sea", "update"), (2, "home", "delete")] if changed else []
    assert read("moves", "id, at_place, _walrelay_operation") == Counter(history)
    assert read("notes", "id, n, kind, m, body") == Counter(notes)
