"""What the DDL trigger says in the stream, of which commands, on the oldest, a middle and the newest server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from tests.integration.ddl_kit import Source, content, fresh_source, named
from walrelay.model.ddl import DdlFailed, TableAltered, TableDropped, parse_ddl
from walrelay.model.names import TableName
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

Server = Callable[[int], EmbeddedPostgres]
INT, INT8 = 23, 20
ODD = '"Odd ""schema"""."t.ä \'\\ ☃"'


@pytest.fixture(params=[18, pytest.param(16, marks=pytest.mark.versions), pytest.param(14, marks=pytest.mark.versions)])
def source(request: pytest.FixtureRequest, postgres_server: Server) -> Iterator[Source]:
    with fresh_source(postgres_server(request.param)) as made:
        yield made


def test_a_message_has_the_tables_whole_shape(source: Source) -> None:
    source.run(
        'CREATE SCHEMA "Odd ""schema"""',
        f"""CREATE TABLE {ODD} (
            gone int, b varchar(10) NOT NULL, "A" int[][], a int NOT NULL,
            twice bigint GENERATED ALWAYS AS (a * 2) STORED, "last\nline" numeric(8, 2), PRIMARY KEY (a, b)
        )""",
        f"""CREATE PUBLICATION "Pub"" 1" FOR TABLE {ODD} WITH (publish = 'insert, delete')""",
    )
    source.said()
    source.run(f"ALTER TABLE {ODD} DROP COLUMN gone, REPLICA IDENTITY FULL")
    (message,) = source.said()
    assert isinstance(message, TableAltered)
    assert message.tag == "ALTER TABLE"
    table = message.table
    assert table.name == TableName('Odd "schema"', "t.ä '\\ ☃")
    assert table.id == source.value("SELECT oid::int8 FROM pg_class WHERE relname LIKE 't.ä%'")
    assert table.filenode == source.value("SELECT relfilenode::int8 FROM pg_class WHERE relname LIKE 't.ä%'")
    assert (table.kind, table.persistence, table.identity, table.natts) == ("r", "p", "f", 6)
    assert (table.key, table.identity_key) == ((4, 2), ())
    assert [(c.attnum, c.name, c.type, c.modifier, c.not_null, c.generated, c.dims) for c in table.columns] == [
        (2, "b", 1043, 14, True, "", 0),
        (3, "A", 1007, -1, False, "", 2),
        (4, "a", INT, -1, True, "", 0),
        (5, "twice", INT8, -1, False, "s", 0),
        (6, "last\nline", 1700, (8 << 16 | 2) + 4, False, "", 0),
    ]
    assert [c.expression for c in table.columns] == [None, None, None, "(a * 2)", None]
    assert (message.leaves, message.types) == (None, ())
    (publication,) = message.publications
    assert publication.name == 'Pub" 1'
    assert (publication.insert, publication.update, publication.delete, publication.truncate) == (
        True,
        False,
        True,
        False,
    )
    assert (publication.via_root, publication.filter, publication.columns) == (False, None, None)


def test_the_session_that_runs_the_ddl_does_not_show_in_the_message(source: Source) -> None:
    source.run(
        "CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'",
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (twice(id)) STORED)",
        "CREATE PUBLICATION p FOR TABLE t",
        "SET quote_all_identifiers = on",
        "SET search_path = public",
        "ALTER TABLE t ADD COLUMN more int",
    )
    created, altered = source.said()
    assert isinstance(created, TableAltered) and isinstance(altered, TableAltered)
    assert altered.table.columns[1].expression == created.table.columns[1].expression == "public.twice(id)"


def test_messages_stand_between_the_changes_where_the_ddl_stood(source: Source) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "CREATE PUBLICATION p FOR TABLE t")
    source.stream()
    with source.admin.transaction():
        source.run(
            "INSERT INTO t VALUES (1, 1)",
            "ALTER TABLE t ADD COLUMN b int",
            "INSERT INTO t VALUES (2, 2, 2)",
            "ALTER TABLE t DROP COLUMN a",
            "ALTER TABLE t RENAME COLUMN b TO a",
            "INSERT INTO t VALUES (3, 3)",
        )
    stream = source.stream("p")
    assert b"".join(message[:1] for message in stream) == b"BRI" + b"MRI" + b"MMRI" + b"C"
    shapes = []
    for message in stream:
        if message[:1] == b"M":
            parsed = parse_ddl(content(message))
            assert isinstance(parsed, TableAltered)
            shapes.append([(column.attnum, column.name) for column in parsed.table.columns])
    assert shapes == [[(1, "id"), (2, "a"), (3, "b")], [(1, "id"), (3, "b")], [(1, "id"), (3, "a")]]


def test_ddl_that_is_rolled_back_says_nothing(source: Source) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    source.said()
    with source.admin.transaction(force_rollback=True):
        source.run("ALTER TABLE t ADD COLUMN a int")
    with source.admin.transaction():
        source.run("ALTER TABLE t ADD COLUMN b int")
        with source.admin.transaction(force_rollback=True):
            source.run("ALTER TABLE t ADD COLUMN c int", "DROP TABLE t")
        source.run("ALTER TABLE t ADD COLUMN d int")
    messages = source.said()
    assert [[column.name for column in m.table.columns] for m in messages if isinstance(m, TableAltered)] == [
        ["id", "b"],
        ["id", "b", "d"],
    ]
    assert len(messages) == 2


def test_ddl_in_functions_and_blocks_and_many_commands_at_once(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        """CREATE FUNCTION grow(name text) RETURNS void LANGUAGE plpgsql AS
           $$BEGIN EXECUTE format('ALTER TABLE t ADD COLUMN %I int', name); END$$""",
        """CREATE PROCEDURE steps() LANGUAGE plpgsql AS
           $$BEGIN ALTER TABLE t ADD x int; COMMIT; ALTER TABLE t ADD y int; END$$""",
    )
    source.said()
    source.run("SELECT grow('a'), grow('b')", "CALL steps()")
    source.run("DO $$BEGIN CREATE TABLE passing (id int); ALTER TABLE passing ADD c int; DROP TABLE passing; END$$")
    assert [named(message) for message in source.said()] == [*["t"] * 4, "passing", "passing", "dropped passing"]
    source.run("DO $$BEGIN FOR i IN 1..150 LOOP EXECUTE format('ALTER TABLE t ADD c%s int', i); END LOOP; END$$")
    messages = source.said()
    assert [m.table.natts for m in messages if isinstance(m, TableAltered)] == list(range(6, 156))


def test_tables_that_nobody_publishes_and_temporary_ones_say_nothing(source: Source) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    source.said()
    source.run(
        "CREATE TYPE mood AS ENUM ('a')",
        "CREATE TABLE other (id int PRIMARY KEY, m mood)",
        "ALTER TYPE mood ADD VALUE 'b'",
        "ALTER TABLE other ADD COLUMN a int",
        "CREATE TABLE third AS SELECT * FROM other",
        "DROP TABLE other, third",
        "ALTER PUBLICATION p SET (publish = 'insert')",
    )
    assert set(source.altered()) == {"t"}
    source.run(
        "DROP PUBLICATION p",
        "CREATE PUBLICATION everything FOR ALL TABLES",
        "CREATE UNLOGGED TABLE fleeting (id int)",
    )
    source.said()
    source.run(
        "CREATE TEMP TABLE scratch (id int PRIMARY KEY)",
        "ALTER TABLE scratch ADD COLUMN a int",
        "CREATE TEMP TABLE copied AS SELECT 1 AS one",
        "DROP TABLE scratch, copied",
        "ALTER TABLE fleeting ADD COLUMN a int",
        "DROP TABLE fleeting",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE SEQUENCE s",
        "CREATE INDEX ON t (id)",
    )
    assert source.said() == []


def test_types_speak_for_the_tables_that_use_them_in_any_way(source: Source) -> None:
    source.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TYPE pair AS (m mood, n int)",
        "CREATE DOMAIN pairs AS pair[]",
        "CREATE TYPE moods AS RANGE (subtype = mood, multirange_type_name = multimood)",
        "CREATE TABLE plain (id int PRIMARY KEY, m mood)",
        "CREATE TABLE deep (id int PRIMARY KEY, p pairs)",
        "CREATE TABLE ranged (id int PRIMARY KEY, several multimood[])",
        "CREATE TABLE rows (id int PRIMARY KEY, r plain)",
        "CREATE TABLE not_it (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE plain, deep, ranged, rows, not_it",
    )
    source.said()
    source.run("ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'")
    told = source.altered()
    assert set(told) == {"plain", "deep", "ranged", "rows"}
    mood = source.value("SELECT 'mood'::regtype::oid::int8")
    for message in told.values():
        (labels,) = [kind.labels for kind in message.types if kind.id == mood]
        assert labels == ("sad", "meh", "ok")
    source.run("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")
    assert source.altered()["plain"].types[0].labels == ("sad", "meh", "fine")
    source.run("ALTER TYPE pair ADD ATTRIBUTE t varchar(7)", "ALTER TYPE pair DROP ATTRIBUTE n")
    _, dropped = source.said()
    assert isinstance(dropped, TableAltered) and named(dropped) == "deep"
    (pair,) = [kind for kind in dropped.types if kind.name == "public.pair"]
    assert pair.labels is None and pair.attributes is not None
    assert [(a.attnum, a.name, a.type, a.modifier) for a in pair.attributes] == [
        (1, "m", mood, -1),
        (3, "t", 1043, 11),
    ]
    source.run("ALTER TYPE pair RENAME ATTRIBUTE t TO u")
    assert set(source.altered()) == {"deep"}
    source.run("ALTER DOMAIN pairs SET NOT NULL")
    assert set(source.altered()) == {"deep"}
    source.run("ALTER TABLE plain ADD COLUMN more int")
    assert set(source.altered()) == {"plain", "rows"}
    source.run("DROP TYPE mood CASCADE")
    assert set(source.altered()) >= {"plain", "deep", "ranged"}


def test_partitions_speak_for_their_published_root(source: Source) -> None:
    source.run(
        "CREATE TABLE root (id int, a int) PARTITION BY RANGE (id)",
        "CREATE TABLE middle PARTITION OF root FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF middle FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE apart (id int, a int)",
        "CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)",
    )
    assert set(source.altered()) == {"root"}
    leaf, apart = source.id("leaf"), source.id("apart")

    source.run("CREATE TABLE young PARTITION OF middle FOR VALUES FROM (10) TO (20)")
    told = source.altered()
    assert set(told) == {"root", "young"}
    assert told["root"].leaves == ((leaf, leaf), (source.id("young"), source.id("young")))
    assert (told["root"].table.kind, told["root"].table.filenode) == ("p", None)
    assert told["young"].leaves is None
    assert [publication.name for publication in told["young"].publications] == ["p"]

    source.run("ALTER TABLE root ATTACH PARTITION apart FOR VALUES FROM (100) TO (200)")
    told = source.altered()
    assert set(told) == {"root", "apart"}
    assert (apart, apart) in (told["root"].leaves or ())

    source.run("ALTER TABLE root ADD COLUMN b int")
    assert set(source.altered()) == {"root"}

    source.run("ALTER TABLE middle DETACH PARTITION young")
    told = source.altered()
    assert set(told) == {"root", "middle", "young"}
    assert told["young"].publications == ()
    assert told["root"].leaves == tuple(sorted([(leaf, leaf), (apart, apart)]))

    source.run("ALTER TABLE root DETACH PARTITION apart CONCURRENTLY")
    assert source.altered()["root"].leaves == ((leaf, leaf),)

    source.run("DROP TABLE leaf")
    messages = source.said()
    assert [named(message) for message in messages] == ["dropped leaf", "root"]
    assert isinstance(messages[1], TableAltered) and messages[1].leaves == ()
    source.run("DROP TABLE root")
    assert sorted(named(message) for message in source.said()) == ["dropped middle", "dropped root"]


def test_leaves_that_are_published_by_themselves_speak_for_themselves(source: Source) -> None:
    source.run(
        "CREATE TABLE root (id int PRIMARY KEY, a int) PARTITION BY RANGE (id)",
        "CREATE TABLE one PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE two PARTITION OF root FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE parent (id int)",
        "CREATE TABLE child () INHERITS (parent)",
        "CREATE PUBLICATION p FOR TABLE root, parent",
    )
    assert set(source.altered()) == {"root", "one", "two", "parent", "child"}
    source.run("ALTER TABLE root ADD COLUMN b int")
    assert set(source.altered()) == {"root", "one", "two"}
    source.run("ALTER TABLE parent ADD COLUMN b int")
    assert set(source.altered()) == {"parent", "child"}
    source.run("ALTER TABLE root DETACH PARTITION two")
    assert source.altered()["two"].publications == ()


def test_publications_speak_for_the_tables_that_come_and_go(source: Source) -> None:
    source.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, a int)" for name in ("t", "u", "v")))
    source.run("CREATE PUBLICATION p FOR TABLE t")
    assert set(source.altered()) == {"t"}
    source.run("ALTER PUBLICATION p ADD TABLE u")
    assert set(source.altered()) == {"u"}
    source.run("ALTER PUBLICATION p SET TABLE u, v")
    told = source.altered()
    assert told["t"].publications == ()
    assert [publication.name for publication in told["v"].publications] == ["p"]
    source.run("ALTER PUBLICATION p DROP TABLE v")
    assert source.altered()["v"].publications == ()
    source.run("ALTER PUBLICATION p SET (publish = 'insert')", "ALTER PUBLICATION p RENAME TO q")
    assert [(p.name, p.update) for p in source.altered()["u"].publications] == [("q", False)]
    source.run("CREATE PUBLICATION everything FOR ALL TABLES")
    told = source.altered()
    assert set(told) == {"t", "u", "v"}
    assert [publication.name for publication in told["u"].publications] == ["everything", "q"]
    source.run("DROP PUBLICATION everything")
    told = source.altered()
    assert {name: [p.name for p in message.publications] for name, message in told.items()} == {
        "t": [],
        "u": ["q"],
        "v": [],
    }
    source.run("DROP PUBLICATION q")
    assert source.altered()["u"].publications == ()


def test_filters_column_lists_and_schemas_of_publications(source: Source) -> None:
    if source.version < 15:
        pytest.skip("Postgres 15 brought them")
    source.run(
        "CREATE SCHEMA s",
        "CREATE TABLE t (id int PRIMARY KEY, a timestamptz, b int)",
        "CREATE TABLE s.u (id int PRIMARY KEY)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE t WHERE (a > '2024-01-01 00:00+00') WITH (publish = 'insert')",
        "SET TimeZone = 'Asia/Tokyo'",
        "SET DateStyle = 'German'",
    )
    source.said()
    source.run("ALTER PUBLICATION p SET TABLE t (b, id) WHERE (a > '2024-01-02 00:00+00')")
    messages = source.said()
    last = messages[-1]
    assert isinstance(last, TableAltered)
    (publication,) = last.publications
    assert publication.filter == "(a > '2024-01-02 00:00:00+00'::timestamp with time zone)"
    assert publication.columns == (1, 3)
    source.run("ALTER TABLE t DROP COLUMN a CASCADE")
    assert source.altered()["t"].publications == ()

    source.run("ALTER PUBLICATION p ADD TABLES IN SCHEMA s")
    assert set(source.altered()) == {"s.u"}
    source.run("ALTER SCHEMA s RENAME TO z")
    assert set(source.altered()) == {"z.u"}
    source.run("ALTER TABLE t SET SCHEMA z")
    assert [p.name for p in source.altered()["z.t"].publications] == ["p"]
    source.run("ALTER PUBLICATION p DROP TABLES IN SCHEMA z")
    told = source.altered()
    assert {name: message.publications for name, message in told.items()} == {"z.t": (), "z.u": ()}


def test_names_keys_identities_storage_and_the_end_of_a_table(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int NOT NULL, a int NOT NULL, b int)",
        "CREATE UNIQUE INDEX by_a ON t (a) INCLUDE (b)",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    source.said()

    def after(statement: str) -> TableAltered:
        source.run(statement)
        (message,) = source.altered().values()
        return message

    assert after("ALTER TABLE t ADD PRIMARY KEY (id) DEFERRABLE").table.key == ()
    source.run("ALTER TABLE t DROP CONSTRAINT t_pkey")
    source.said()
    assert after("ALTER TABLE t ADD PRIMARY KEY (id)").table.identity_key == (1,)
    table = after("ALTER TABLE t REPLICA IDENTITY USING INDEX by_a").table
    assert (table.identity, table.key, table.identity_key) == ("i", (1,), (2,))
    assert after("DROP INDEX by_a").table.identity_key == ()
    assert after("ALTER TABLE t REPLICA IDENTITY NOTHING").table.identity == "n"
    rewritten = after("ALTER TABLE t ALTER COLUMN b TYPE int8").table
    assert rewritten.filenode == source.value("SELECT pg_relation_filenode('t')::int8") != rewritten.id
    assert rewritten.columns[2].type == INT8
    assert after("ALTER TABLE t RENAME TO u").table.name == TableName("public", "u")
    message = after("ALTER TABLE u SET UNLOGGED")
    assert (message.table.persistence, message.publications) == ("u", ())
    assert [p.name for p in after("ALTER TABLE u SET LOGGED").publications] == ["p"]
    assert after("CREATE TABLE made AS SELECT 1 AS one, 'x'::text AS two").tag == "CREATE TABLE AS"
    assert after("SELECT 1 AS one INTO made_too").tag == "SELECT INTO"
    source.run("CREATE SCHEMA s CREATE TABLE inner_one (id int)")
    assert set(source.altered()) == {"s.inner_one"}
    u, inner = source.id("u"), source.id("s.inner_one")
    source.run("DROP TABLE u", "DROP SCHEMA s CASCADE")
    assert source.said() == [
        TableDropped("DROP TABLE", u, TableName("public", "u")),
        TableDropped("DROP SCHEMA", inner, TableName("s", "inner_one")),
    ]


def test_a_session_that_applies_changes_of_another_server_fires_it_too(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE t",
        "SET session_replication_role = replica",
        "ALTER TABLE t ADD COLUMN a int",
        "DROP TABLE t",
    )
    assert [named(message) for message in source.said()] == ["t", "t", "dropped t"]


def test_a_failure_in_the_trigger_never_breaks_the_ddl(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE t",
        """CREATE OR REPLACE FUNCTION walrelay.table_shape(table_id oid) RETURNS json LANGUAGE plpgsql STABLE AS
           $$BEGIN RAISE EXCEPTION 'precious' USING ERRCODE = 'XX123'; END$$""",
    )
    source.said()
    source.run("ALTER TABLE t ADD COLUMN a int")
    assert source.said() == [DdlFailed("ALTER TABLE", "XX123")]
    source.run("DROP FUNCTION walrelay.reached_tables(oid[], oid[])", "ALTER TABLE t ADD COLUMN b int", "DROP TABLE t")
    assert {message.sqlstate for message in source.said() if isinstance(message, DdlFailed)} == {"42883"}


def test_a_lock_that_another_session_holds_does_not_hold_the_ddl_up(source: Source) -> None:
    source.run(
        "CREATE TYPE mood AS ENUM ('a')",
        "CREATE TABLE t (id int PRIMARY KEY, m mood, g int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    source.said()
    with psycopg.connect(source.url) as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        source.run("SET statement_timeout = '60s'", "ALTER TYPE mood ADD VALUE 'b'")
        other.rollback()
    (message,) = source.said()
    assert named(message) in ("t", "failed 55P03")  # by version: to print an expression some lock its table


def test_a_transaction_with_an_old_snapshot_says_that_it_does_not_know(source: Source) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other ()", "CREATE PUBLICATION p FOR TABLE t")
    source.said()
    with psycopg.connect(source.url) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        session.execute("SET LOCAL synchronous_commit = on")
        session.execute("SELECT 1 FROM t")
        session.execute("ALTER TABLE t ADD COLUMN a int")
        session.execute("ALTER TABLE other ADD COLUMN a int")
    assert source.said() == [DdlFailed("ALTER TABLE", "25004")]


def test_a_role_without_rights_runs_ddl_and_gains_none(source: Source) -> None:
    role = f"worker_{source.slot}"
    source.run(f"CREATE ROLE {role} LOGIN", f"CREATE SCHEMA own AUTHORIZATION {role}")
    try:
        source.run("REVOKE ALL ON FUNCTION pg_logical_emit_message(boolean, text, bytea) FROM PUBLIC")
    except psycopg.errors.UndefinedFunction:
        source.run("REVOKE ALL ON FUNCTION pg_logical_emit_message(boolean, text, bytea, boolean) FROM PUBLIC")
    source.run("CREATE PUBLICATION p FOR ALL TABLES")
    as_role = source.url.replace("postgres@", f"{role}@")
    with psycopg.connect(as_role, autocommit=True) as session:
        session.execute("CREATE TABLE own.trap (who text)")
        # Names that a careless function would find in the caller's path, and run with its owner's rights.
        for arguments in ("oid[]", "anyarray"):
            session.execute(
                sql.SQL(
                    "CREATE FUNCTION own.unnest({}) RETURNS SETOF oid LANGUAGE plpgsql AS"
                    " $$BEGIN INSERT INTO own.trap VALUES (current_user); END$$"
                ).format(sql.SQL(arguments))  # type: ignore[arg-type]
            )
    # Another session: in the first the trigger's queries were planned before the traps were laid.
    with psycopg.connect(as_role, autocommit=True) as session:
        session.execute("SET synchronous_commit = on")
        session.execute("SET search_path = own, pg_catalog")
        session.execute("CREATE TABLE t (id int PRIMARY KEY)")
        session.execute("ALTER TABLE t ADD COLUMN a int")
        assert session.execute("SELECT current_user, count(*) FROM trap").fetchone() == (role, 0)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT walrelay.table_shape('t'::regclass)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("CREATE FUNCTION walrelay.more() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        session.execute("DROP TABLE t, trap")
    assert [named(message) for message in source.said()] == [
        "own.trap",
        "own.t",
        "own.t",
        "dropped own.trap",
        "dropped own.t",
    ]
    source.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_messages_are_utf8_whatever_the_databases_encoding(postgres18: EmbeddedPostgres) -> None:
    options = "ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    with fresh_source(postgres18, options=options) as source:
        source.run('CREATE TABLE "größe" (id int PRIMARY KEY, "naïve" int)', 'CREATE PUBLICATION p FOR TABLE "größe"')
        (message,) = source.altered().values()
    assert message.table.name.name == "größe"
    assert message.table.columns[1].name == "naïve"


def test_generated_columns_of_a_publication_and_virtual_ones(postgres18: EmbeddedPostgres) -> None:
    with fresh_source(postgres18) as source:
        source.run(
            "CREATE TABLE t (id int PRIMARY KEY, v int GENERATED ALWAYS AS (id + 1) VIRTUAL)",
            "CREATE PUBLICATION p FOR TABLE t WITH (publish_generated_columns = stored)",
        )
        (message,) = source.altered().values()
    assert [(c.generated, c.expression) for c in message.table.columns] == [("", None), ("v", "(id + 1)")]
    assert message.publications[0].generated == "s"
