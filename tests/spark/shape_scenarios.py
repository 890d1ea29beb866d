"""What may happen to a table under replication, as lists of steps. Every table has about 200 rows before it begins.

`{t}` in a statement is the scenario's table. What the publication gives of it, where that is not simply the table, is
`listed`; a step that begins with `LIST` gives it anew in one `ALTER PUBLICATION p SET TABLE` with all other tables.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPS = {
    "tables": "FOR TABLE {tables}",
    "listed": "FOR TABLE {tables}",
    "root": "FOR TABLE {tables}, TABLES IN SCHEMA inside WITH (publish_via_partition_root = true)",
    "all": "FOR ALL TABLES WITH (publish_via_partition_root = true)",
    "publish": "FOR TABLE {tables}",
}
"""Scenarios that share a publication share a run. What changes a publication would hide what others attack."""

THREE = "CREATE TABLE {t} (id int PRIMARY KEY, a text, b text, c text)"
ROWS = "INSERT INTO {t} SELECT g, 'a' || g, 'b' || g, 'c' || g FROM generate_series(1, 200) AS g"


@dataclass(frozen=True)
class Scenario:
    """One table, or some, and what happens to them."""

    name: str
    steps: tuple[str, ...]
    setup: tuple[str, ...] = (THREE, ROWS)
    group: str = "tables"
    listed: tuple[str, ...] = ("{t}",)
    """What the publication names; nothing where it takes the whole schema or database."""
    tables: tuple[str, ...] = ("public.{t}",)
    """The tables that must be equal at the end."""
    copied_once: bool = False
    """Whether the DDL trigger tells enough to alter the copy in place."""

    def filled(self, texts: tuple[str, ...]) -> list[str]:
        return [text.replace("{t}", self.name) for text in texts]


def update(number: int, column: str = "c") -> str:
    return f"UPDATE {{t}} SET {column} = 'new {number}' WHERE id = {number}"


def insert(number: int, columns: str, *values: str) -> str:
    return f"INSERT INTO {{t}} (id, {columns}) VALUES ({number}, {', '.join(values)})"


COLUMNS = (
    Scenario(
        "two_renames",
        (
            "ALTER TABLE {t} RENAME COLUMN a TO a2",
            insert(1001, "a2", "'between'"),
            "ALTER TABLE {t} RENAME COLUMN a2 TO a3",
            insert(1002, "a3", "'after'"),
        ),
        copied_once=True,
    ),
    Scenario(
        "two_renames_then_nothing",
        (
            "ALTER TABLE {t} RENAME COLUMN a TO a2",
            insert(1001, "a2", "'between'"),
            "ALTER TABLE {t} RENAME COLUMN a2 TO a3",
        ),
        copied_once=True,
    ),
    Scenario(
        "columns_swap_names",
        (
            update(1),
            "ALTER TABLE {t} RENAME COLUMN a TO tmp",
            "ALTER TABLE {t} RENAME COLUMN c TO a",
            "ALTER TABLE {t} RENAME COLUMN tmp TO c",
            insert(1001, "a, b, c", "'was c'", "'b'", "'was a'"),
            update(2, "c"),
        ),
        copied_once=True,
    ),
    Scenario(
        "dropped_and_added_as_int",
        (
            update(1, "b"),
            "ALTER TABLE {t} DROP COLUMN b",
            "ALTER TABLE {t} ADD COLUMN b int",
            "UPDATE {t} SET b = 2 WHERE id = 2",
        ),
    ),
    Scenario(
        "dropped_and_added_alike",
        (
            update(1, "b"),
            "ALTER TABLE {t} DROP COLUMN b",
            "ALTER TABLE {t} ADD COLUMN b text",
            update(2, "b"),
        ),
    ),
    Scenario(
        "last_dropped_and_added_alike",
        (update(1), "ALTER TABLE {t} DROP COLUMN c", "ALTER TABLE {t} ADD COLUMN c text", update(2)),
    ),
    Scenario(
        "renamed_and_added",
        (
            update(1, "b"),
            "ALTER TABLE {t} RENAME COLUMN b TO old_b",
            "ALTER TABLE {t} ADD COLUMN b text",
            update(2, "b"),
            update(3, "old_b"),
        ),
        copied_once=True,
    ),
    Scenario(
        "added_and_renamed",
        (
            "ALTER TABLE {t} ADD COLUMN d1 text",
            insert(1001, "d1", "'first'"),
            "ALTER TABLE {t} RENAME COLUMN d1 TO d2",
            insert(1002, "d2", "'second'"),
        ),
        copied_once=True,
    ),
    Scenario(
        "dropped_and_another_added",
        (
            "ALTER TABLE {t} DROP COLUMN a",
            "ALTER TABLE {t} ADD COLUMN e text",
            insert(1001, "e", "'e'"),
        ),
    ),
    Scenario(
        "added_with_a_default",
        ("ALTER TABLE {t} ADD COLUMN d int DEFAULT 7", "UPDATE {t} SET d = 8 WHERE id = 1"),
    ),
    Scenario("only_renamed", ("ALTER TABLE {t} RENAME COLUMN b TO b2",)),
    Scenario("only_added", ("ALTER TABLE {t} ADD COLUMN d int",)),
    Scenario("only_added_with_a_default", ("ALTER TABLE {t} ADD COLUMN d int DEFAULT 7",)),
    Scenario("only_dropped", ("ALTER TABLE {t} DROP COLUMN b",)),
    Scenario("truncated", (update(1), "TRUNCATE {t}", insert(5, "a, b, c", "'1'", "'2'", "'3'"))),
    Scenario(
        "truncated_amid_renames",
        (
            "ALTER TABLE {t} RENAME COLUMN a TO a2",
            insert(1001, "a2", "'between'"),
            "TRUNCATE {t}",
            insert(1002, "a2", "'empty before'"),
            "ALTER TABLE {t} RENAME COLUMN a2 TO a3",
            insert(1003, "a3", "'after'"),
        ),
    ),
)


def retyped(name: str, before: str, values: str, after: str, value: str, *, once: bool = False) -> Scenario:
    """A column of one type is made another one's; `values` are of row g, `value` is what a row gets afterwards."""
    return Scenario(
        name,
        (
            f"UPDATE {{t}} SET v = {values} WHERE id = 1",
            f"ALTER TABLE {{t}} ALTER COLUMN v TYPE {after}",
            f"UPDATE {{t}} SET v = {value} WHERE id = 2",
        ),
        setup=(
            f"CREATE TABLE {{t}} (id int PRIMARY KEY, v {before}, g int)",
            f"INSERT INTO {{t}} SELECT g, {values}, g FROM generate_series(1, 200) AS g",
        ),
        copied_once=once,
    )


TYPES = (
    retyped("json_to_jsonb", "json", """('{"b": 1,  "a": ' || g || '}')::json""", "jsonb", """'{"z": 1, "y": 2}'"""),
    retyped(
        "fewer_fractions_of_a_second",
        "timestamp(6)",
        "timestamp '2024-01-01 10:00:00.654321' + g * interval '1 second'",
        "timestamp(0)",
        "'2024-05-05 05:05:05'",
    ),
    retyped("longer_char", "char(3)", "'x' || g % 10", "char(10)", "'y'"),
    retyped("char_to_varchar", "char(3)", "'x' || g % 10", "varchar", "'y'"),
    retyped("int_times_hundred", "int", "g", "bigint USING v * 100", "7"),
    retyped("text_to_inet", "text", "'10.0.0.' || g", "inet USING v::inet", "'10.1.0.0/16'"),
    retyped(
        "text_to_enum", "text", "CASE WHEN g % 2 = 0 THEN 'odd' ELSE 'even' END", "parity USING v::parity", "'odd'"
    ),
    retyped("text_cut", "text", "'long text ' || g", "varchar(6) USING left(v, 6)", "'short'"),
    retyped("int_to_oid", "int", "g", "oid", "4000000000"),
    retyped("rounded", "numeric(6, 2)", "g + 0.55", "numeric(6, 1)", "1.5"),
    retyped("longer_varchar", "varchar(10)", "'v' || g", "varchar(20)", "'longer than ten'", once=True),
    retyped("text_to_upper", "text", "'v' || g", "text USING upper(v)", "'small again'"),
    retyped("int_to_bigint", "int", "g", "bigint", "5000000000"),
    Scenario(
        "only_upper",
        ("ALTER TABLE {t} ALTER COLUMN b TYPE text USING upper(b)",),
    ),
)

ENUM = ("CREATE TYPE {t}_type AS ENUM ('red', 'green')", "CREATE TABLE {t} (id int PRIMARY KEY, v {t}_type)")
ENUM_ROWS = (
    "INSERT INTO {t} SELECT g, CASE WHEN g % 2 = 0 THEN 'red' ELSE 'green' END::{t}_type"
    " FROM generate_series(1, 200) AS g"
)
PAIR = (
    "CREATE TYPE {t}_type AS (x int, y text)",
    "CREATE TABLE {t} (id int PRIMARY KEY, v {t}_type)",
    "INSERT INTO {t} SELECT g, ROW(g, 'y' || g)::{t}_type FROM generate_series(1, 200) AS g",
)
GENERATED = (
    "CREATE TABLE {t} (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2) STORED)",
    "INSERT INTO {t} SELECT g, g FROM generate_series(1, 200) AS g",
)
BEHIND = (
    Scenario(
        "label_renamed",
        ("UPDATE {t} SET v = 'red' WHERE id = 1", "ALTER TYPE {t}_type RENAME VALUE 'red' TO 'crimson'"),
        setup=(*ENUM, ENUM_ROWS),
    ),
    Scenario(
        "label_renamed_then_a_change",
        (
            "UPDATE {t} SET v = 'red' WHERE id = 1",
            "ALTER TYPE {t}_type RENAME VALUE 'red' TO 'crimson'",
            "UPDATE {t} SET v = 'crimson' WHERE id = 3",
        ),
        setup=(*ENUM, ENUM_ROWS),
    ),
    Scenario(
        "label_renamed_there_and_back",
        (
            "ALTER TYPE {t}_type RENAME VALUE 'red' TO 'crimson'",
            "INSERT INTO {t} VALUES (1001, 'crimson')",
            "ALTER TYPE {t}_type RENAME VALUE 'crimson' TO 'red'",
        ),
        setup=(*ENUM, ENUM_ROWS),
    ),
    Scenario(
        "expression_set",
        (
            "UPDATE {t} SET a = 0 WHERE id = 1",
            "ALTER TABLE {t} ALTER COLUMN g SET EXPRESSION AS (a * 3)",
            "UPDATE {t} SET a = 500 WHERE id = 2",
        ),
        setup=GENERATED,
        listed=("{t} (id, a, g)",),
    ),
    Scenario(
        "only_expression_set",
        ("ALTER TABLE {t} ALTER COLUMN g SET EXPRESSION AS (a * 3)",),
        setup=GENERATED,
        listed=("{t} (id, a, g)",),
    ),
    Scenario(
        "attribute_added",
        (
            "UPDATE {t} SET v.y = 'new' WHERE id = 1",
            "ALTER TYPE {t}_type ADD ATTRIBUTE z int",
            "INSERT INTO {t} VALUES (1001, ROW(1, 'one', 1))",
        ),
        setup=PAIR,
    ),
    Scenario("only_attribute_added", ("ALTER TYPE {t}_type ADD ATTRIBUTE z int",), setup=PAIR),
)

IDENTITY = (
    Scenario(
        "another_primary_key",
        (
            "UPDATE {t} SET c = 'new 1' WHERE id = 1",
            "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
            "ALTER TABLE {t} ADD PRIMARY KEY (k)",
            "UPDATE {t} SET id = 0 WHERE k = 1003",
            "UPDATE {t} SET k = 5 WHERE k = 1004",
            "DELETE FROM {t} WHERE k IN (1005, 1006)",
        ),
        setup=(
            "CREATE TABLE {t} (id int PRIMARY KEY, k int NOT NULL, c text)",
            "INSERT INTO {t} SELECT g, 1000 + g, 'c' || g FROM generate_series(1, 200) AS g",
        ),
    ),
    Scenario(
        "identity_full_and_back",
        (
            update(1),
            "ALTER TABLE {t} REPLICA IDENTITY FULL",
            update(2),
            "UPDATE {t} SET id = 2003 WHERE id = 3",
            "DELETE FROM {t} WHERE id = 4",
            "ALTER TABLE {t} REPLICA IDENTITY DEFAULT",
            update(5),
            "DELETE FROM {t} WHERE id = 6",
        ),
    ),
)

NAMES = (
    Scenario(
        "tables_swap_names",
        (
            update(1),
            "INSERT INTO {t}_other VALUES (1001, 1)",
            "ALTER TABLE {t} RENAME TO {t}_tmp",
            "ALTER TABLE {t}_other RENAME TO {t}",
            "ALTER TABLE {t}_tmp RENAME TO {t}_other",
            "INSERT INTO {t} VALUES (1002, 2)",
            "UPDATE {t}_other SET c = 'after' WHERE id = 2",
        ),
        setup=(
            THREE,
            ROWS,
            "CREATE TABLE {t}_other (id int PRIMARY KEY, n int)",
            "INSERT INTO {t}_other SELECT g, g FROM generate_series(1, 200) AS g",
        ),
        listed=("{t}", "{t}_other"),
        tables=("public.{t}", "public.{t}_other"),
    ),
    Scenario(
        "only_tables_swap_names",
        (
            "ALTER TABLE {t} RENAME TO {t}_tmp",
            "ALTER TABLE {t}_other RENAME TO {t}",
            "ALTER TABLE {t}_tmp RENAME TO {t}_other",
        ),
        setup=(THREE, ROWS, "CREATE TABLE {t}_other (LIKE {t} INCLUDING ALL)"),
        listed=("{t}", "{t}_other"),
        tables=("public.{t}", "public.{t}_other"),
    ),
    Scenario("only_table_renamed", ("ALTER TABLE {t} RENAME TO {t}_new",), tables=("public.{t}_new",)),
    Scenario(
        "schema_renamed_and_back",
        (
            "UPDATE {t}.items SET c = 'new 1' WHERE id = 1",
            "ALTER SCHEMA {t} RENAME TO {t}_tmp",
            "UPDATE {t}_tmp.items SET c = 'new 2' WHERE id = 2",
            "ALTER SCHEMA {t}_tmp RENAME TO {t}",
            "UPDATE {t}.items SET c = 'new 3' WHERE id = 3",
        ),
        setup=("CREATE SCHEMA {t}", THREE.replace("{t}", "{t}.items"), ROWS.replace("{t}", "{t}.items")),
        listed=("{t}.items",),
        tables=("{t}.items",),
    ),
)

LISTED = (
    Scenario(
        "filter_changed",
        (update(50), "LIST {t} WHERE (id >= 50)", update(150), update(10)),
        group="listed",
        listed=("{t} WHERE (id < 100)",),
    ),
    Scenario("only_filter_changed", ("LIST {t} WHERE (id >= 50)",), group="listed", listed=("{t} WHERE (id < 100)",)),
    Scenario("list_removed", (update(1, "b"), "LIST {t}", update(2)), group="listed", listed=("{t} (id, b)",)),
    Scenario("only_list_removed", ("LIST {t}",), group="listed", listed=("{t} (id, b)",)),
    Scenario(
        "list_widened",
        (update(1, "b"), "LIST {t} (id, a, b)", update(2, "a")),
        group="listed",
        listed=("{t} (id, b)",),
    ),
    Scenario(
        "list_narrowed",
        (update(1, "b"), "LIST {t} (id, b)", update(2, "b")),
        group="listed",
        listed=("{t} (id, a, b)",),
    ),
    Scenario("only_list_narrowed", ("LIST {t} (id, b)",), group="listed", listed=("{t} (id, a, b)",)),
    Scenario(
        "out_of_the_publication_and_back",
        (
            update(1),
            "ALTER PUBLICATION p DROP TABLE {t}",
            update(2),
            "DELETE FROM {t} WHERE id = 3",
            insert(1001, "a", "'unseen'"),
            "ALTER PUBLICATION p ADD TABLE {t}",
            update(4),
        ),
        group="listed",
    ),
    Scenario(
        "altered_out_of_the_publication",
        (
            "ALTER PUBLICATION p DROP TABLE {t}",
            "ALTER TABLE {t} RENAME COLUMN a TO a2",
            "ALTER TABLE {t} ADD COLUMN d int DEFAULT 7",
            update(2),
            "ALTER PUBLICATION p ADD TABLE {t}",
        ),
        group="listed",
    ),
)


def partitioned(name: str, *steps: str, tables: tuple[str, ...] = ("public.{t}",), group: str = "root") -> Scenario:
    return Scenario(
        name,
        steps,
        setup=(
            "CREATE TABLE {t} (id int PRIMARY KEY, c text) PARTITION BY RANGE (id)",
            "CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (1) TO (101)",
            "CREATE TABLE {t}_high PARTITION OF {t} FOR VALUES FROM (101) TO (201)",
            "INSERT INTO {t} SELECT g, 'c' || g FROM generate_series(1, 200) AS g",
        ),
        group=group,
        listed=("{t}",) if group == "root" else (),
        tables=tables,
    )


PARTITIONS = (
    partitioned("partition_dropped", update(1), "DROP TABLE {t}_high", update(2)),
    partitioned("only_partition_dropped", "DROP TABLE {t}_high"),
    partitioned("partition_detached", update(1), "ALTER TABLE {t} DETACH PARTITION {t}_high", update(2)),
    partitioned("only_partition_truncated", "TRUNCATE {t}_high"),
    partitioned("partition_truncated", update(150), "TRUNCATE {t}_high", update(2)),
    partitioned(
        "partition_truncated_after_its_root",
        "TRUNCATE {t}",
        "INSERT INTO {t} SELECT g, 'again' || g FROM generate_series(1, 200) AS g",
        "TRUNCATE {t}_high",
        update(2),
    ),
    partitioned(
        "partition_come_and_gone",
        "CREATE TABLE {t}_more PARTITION OF {t} FOR VALUES FROM (201) TO (301)",
        "INSERT INTO {t} SELECT g, 'more' || g FROM generate_series(201, 300) AS g",
        "DROP TABLE {t}_more",
        update(2),
    ),
    partitioned(
        "partition_come_and_detached",
        "CREATE TABLE {t}_more PARTITION OF {t} FOR VALUES FROM (201) TO (301)",
        "INSERT INTO {t} SELECT g, 'more' || g FROM generate_series(201, 300) AS g",
        "ALTER TABLE {t} DETACH PARTITION {t}_more",
    ),
    partitioned(
        "filled_partition_attached",
        "CREATE TABLE {t}_more (id int PRIMARY KEY, c text)",
        "INSERT INTO {t}_more SELECT g, 'more' || g FROM generate_series(201, 300) AS g",
        "ALTER TABLE {t} ATTACH PARTITION {t}_more FOR VALUES FROM (201) TO (301)",
    ),
    partitioned(
        "empty_partition_created",
        "CREATE TABLE {t}_more PARTITION OF {t} FOR VALUES FROM (201) TO (301)",
        "INSERT INTO {t} SELECT g, 'more' || g FROM generate_series(201, 300) AS g",
    ),
    partitioned(
        "partition_swapped_for_another",
        update(150),
        "CREATE TABLE {t}_next (id int PRIMARY KEY, c text)",
        "INSERT INTO {t}_next SELECT g, 'next' || g FROM generate_series(101, 150) AS g",
        "ALTER TABLE {t} DETACH PARTITION {t}_high",
        "ALTER TABLE {t} ATTACH PARTITION {t}_next FOR VALUES FROM (101) TO (201)",
        update(110),
    ),
    Scenario(
        "out_of_the_schema_and_back",
        (
            "UPDATE inside.{t} SET c = 'new 1' WHERE id = 1",
            "ALTER TABLE inside.{t} SET SCHEMA public",
            "UPDATE {t} SET c = 'unseen' WHERE id = 2",
            "ALTER TABLE {t} SET SCHEMA inside",
            "UPDATE inside.{t} SET c = 'new 3' WHERE id = 3",
        ),
        setup=(THREE.replace("{t}", "inside.{t}"), ROWS.replace("{t}", "inside.{t}")),
        group="root",
        listed=(),
        tables=("inside.{t}",),
    ),
    Scenario(
        "unlogged_and_back",
        (
            update(1),
            "ALTER TABLE {t} SET UNLOGGED",
            update(2),
            "DELETE FROM {t} WHERE id = 3",
            insert(1001, "a", "'unseen'"),
            "ALTER TABLE {t} SET LOGGED",
            update(4),
        ),
        group="all",
        listed=(),
    ),
    Scenario(
        "unlogged_and_back_then_nothing",
        ("ALTER TABLE {t} SET UNLOGGED", update(2), "ALTER TABLE {t} SET LOGGED"),
        group="all",
        listed=(),
    ),
    Scenario(
        "unlogged_after_a_truncate",
        (
            "TRUNCATE {t}",
            ROWS,
            "ALTER TABLE {t} SET UNLOGGED",
            update(2),
            "ALTER TABLE {t} SET LOGGED",
            update(4),
        ),
        group="all",
        listed=(),
    ),
    partitioned(
        "partition_detached_to_itself",
        update(1),
        "ALTER TABLE {t} DETACH PARTITION {t}_high",
        update(2),
        "UPDATE {t}_high SET c = 'alone' WHERE id = 150",
        tables=("public.{t}", "public.{t}_high"),
        group="all",
    ),
    Scenario(
        "only_inserts_for_a_while",
        (
            update(1),
            "ALTER PUBLICATION p SET (publish = 'insert')",
            update(2),
            "DELETE FROM {t} WHERE id = 3",
            insert(1001, "a", "'seen'"),
            "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')",
            update(4),
        ),
        group="publish",
    ),
)

SCENARIOS = (*COLUMNS, *TYPES, *BEHIND, *IDENTITY, *NAMES, *LISTED, *PARTITIONS)
