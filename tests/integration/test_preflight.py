"""Preflight against real servers: what it finds must be what Postgres then does."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import psycopg
import pytest
import typer
from psycopg import sql
from typer.testing import CliRunner

from walrelay.cli.preflight import preflight_command
from walrelay.control import preflight_server
from walrelay.control.preflight import Finding, Mode, Report, Severity, preflight
from walrelay.control.preflight_facts import Facts, read_facts
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

# Whatever can be wrong with a server at once.
POOR = {
    "wal_level": "replica",
    "max_wal_senders": "0",
    "max_replication_slots": "0",
    "max_slot_wal_keep_size": "64MB",
    "idle_replication_slot_timeout": "60s",
}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings={"max_slot_wal_keep_size": "50GB"}) as running:
        yield running


@pytest.fixture(scope="module")
def poor_server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings=POOR) as running:
        yield running


@dataclass(frozen=True)
class Database:
    """A database of the test's own, with a role that has no right but to log in."""

    url: str
    admin: psycopg.Connection[tuple[object, ...]]
    role: str

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.admin.execute(sql.SQL(statement).format(role=sql.Identifier(self.role)))

    def as_role(self) -> str:
        return self.url.replace("postgres@", f"{self.role}@")


_numbers = itertools.count()


@contextmanager
def new_database(server: EmbeddedPostgres) -> Iterator[Database]:
    number = next(_numbers)
    url = server.create_database(f"preflight_{number}")
    with psycopg.connect(url, autocommit=True) as admin:
        database = Database(url, admin, f"reader_{number}")
        database.run("CREATE ROLE {role} LOGIN")
        yield database


@pytest.fixture
def database(server: EmbeddedPostgres) -> Iterator[Database]:
    with new_database(server) as made:
        yield made


def ask(url: str, mode: Mode = "both", publication: str = "shop") -> Report:
    return preflight(PostgresSource(url, publication=publication), mode=mode)


def findings(report: Report, check: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.check == check]


def only(report: Report, check: str) -> Finding:
    (finding,) = findings(report, check)
    return finding


def worse_than_note(report: Report) -> set[str]:
    bad = (Severity.WARNING, Severity.ERROR)
    return {finding.check for finding in report.findings if finding.severity in bad}


def run_command(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(preflight_command)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_a_sound_source_is_ready(database: Database) -> None:
    database.run("CREATE TABLE orders (id int PRIMARY KEY, note text)", "CREATE PUBLICATION shop FOR TABLE orders")
    report = ask(database.url)
    assert report.ok
    assert {finding.severity for finding in report.findings} == {Severity.OK}
    assert report.server_version.startswith("18")
    assert only(report, "publication").message == "shop has 1 table"


@pytest.mark.versions
@pytest.mark.parametrize("version", [14, 15, 16, 17])
def test_older_servers_are_understood(version: int) -> None:
    with EmbeddedPostgres(version=version) as old, new_database(old) as database:
        database.run(
            "CREATE TABLE orders (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)",
            "ALTER TABLE orders REPLICA IDENTITY FULL",
            "CREATE PUBLICATION shop FOR TABLE orders",
            "INSERT INTO orders VALUES (1)",
            "UPDATE orders SET n = 2",
        )
        report = ask(database.url)
        assert worse_than_note(report) == set()
        assert only(report, "generated_columns").message == "not published: public.orders (twice)"


def test_a_copy_needs_no_logical_wal_but_changes_do(poor_server: EmbeddedPostgres) -> None:
    with new_database(poor_server) as database:
        database.run("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION shop FOR TABLE orders")
        copy, both = ask(database.url, "copy"), ask(database.url)
    assert copy.ok
    assert only(copy, "wal_level").severity is Severity.NOTE
    assert not both.ok
    assert only(both, "wal_level").severity is Severity.ERROR
    assert "ALTER SYSTEM SET wal_level" in (only(both, "wal_level").remedy or "")


def test_a_managed_service_is_told_its_own_switch(poor_server: EmbeddedPostgres) -> None:
    with new_database(poor_server) as database:
        name = database.admin.info.dbname
        database.run(f"ALTER DATABASE {name} SET rds.logical_replication = 'off'", "CREATE PUBLICATION shop")
        assert "parameter group" in (only(ask(database.url), "wal_level").remedy or "")


def test_exhausted_slots_and_senders_and_short_lived_slots_are_told(poor_server: EmbeddedPostgres) -> None:
    with new_database(poor_server) as database:
        report = ask(database.url)
    assert only(report, "replication_slots").severity is Severity.ERROR
    assert only(report, "wal_senders").severity is Severity.ERROR
    assert only(report, "max_slot_wal_keep_size").severity is Severity.WARNING
    assert only(report, "max_slot_wal_keep_size").message.startswith("64 MB")
    assert only(report, "idle_replication_slot_timeout").severity is Severity.WARNING
    assert only(report, "idle_replication_slot_timeout").message.startswith("1min")


def test_a_missing_publication_is_told_with_those_that_exist(database: Database) -> None:
    database.run("CREATE PUBLICATION other")
    finding = only(ask(database.url), "publication")
    assert finding.severity is Severity.ERROR
    assert "This database has: other." in (finding.remedy or "")


def test_an_empty_publication_is_a_problem(database: Database) -> None:
    database.run("CREATE PUBLICATION shop")
    report = ask(database.url)
    assert only(report, "publication").severity is Severity.ERROR
    assert "has no tables" in only(report, "publication").message


def test_operations_that_are_not_published_are_a_warning(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE PUBLICATION shop FOR TABLE orders WITH (publish = 'insert, update')",
    )
    finding = only(ask(database.url), "publish_operations")
    assert finding.severity is Severity.WARNING
    assert "does not publish delete, truncate" in finding.message


def test_a_role_without_rights_is_told_what_to_grant_and_the_grants_suffice(database: Database) -> None:
    database.run(
        "CREATE SCHEMA sales",
        'CREATE TABLE sales.orders (id int PRIMARY KEY, "group" text)',
        'CREATE TABLE public."Odd name" (id int PRIMARY KEY)',
        "CREATE TABLE public.open (id int PRIMARY KEY)",
        "GRANT SELECT ON public.open TO {role}",
        "GRANT SELECT (id) ON sales.orders TO {role}",
        'CREATE PUBLICATION shop FOR TABLE sales.orders, public."Odd name", public.open',
    )
    report = ask(database.as_role())
    assert worse_than_note(report) == {"replication_right", "schema_usage", "select_right"}
    select = only(report, "select_right")
    assert select.tables == ('public."Odd name"', "sales.orders")
    assert (select.remedy or "").splitlines() == [
        f'GRANT SELECT ON public."Odd name" TO {database.role};',
        f'GRANT SELECT ("ctid", "group") ON sales.orders TO {database.role};',
    ]
    assert only(report, "schema_usage").remedy == f"GRANT USAGE ON SCHEMA sales TO {database.role};"
    assert only(report, "replication_right").remedy == f"ALTER ROLE {database.role} REPLICATION;"

    database.run(
        *(finding.remedy for finding in report.findings if finding.severity is Severity.ERROR and finding.remedy)
    )
    assert worse_than_note(ask(database.as_role())) == set()
    with psycopg.connect(database.as_role()) as reader:
        reader.execute("""SELECT id, "group" FROM sales.orders WHERE ctid >= '(0,0)'""")


def test_membership_stands_in_for_replication_where_a_service_has_it_so(database: Database) -> None:
    database.run("CREATE ROLE rds_replication", "CREATE PUBLICATION shop")
    try:
        lacking = only(ask(database.as_role()), "replication_right")
        assert lacking.remedy == f"GRANT rds_replication TO {database.role};"
        database.run(lacking.remedy)
        assert only(ask(database.as_role()), "replication_right").severity is Severity.OK
    finally:
        database.run("DROP ROLE rds_replication")


def test_columns_outside_the_list_need_no_right_but_the_filters_do(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, note text, secret text, region text)",
        "GRANT SELECT (id, note, ctid) ON orders TO {role}",
        "CREATE PUBLICATION shop FOR TABLE orders (id, note) WHERE (region = 'eu') WITH (publish = 'insert')",
    )
    assert only(ask(database.as_role()), "select_right").remedy == (
        f'GRANT SELECT ("region") ON public.orders TO {database.role};'
    )


def test_rights_on_a_partitioned_table_are_those_on_its_partitions(database: Database) -> None:
    database.run(
        "CREATE TABLE events (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10)",
        "GRANT SELECT ON events TO {role}",
        "CREATE PUBLICATION shop FOR TABLE events WITH (publish_via_partition_root)",
    )
    assert only(ask(database.as_role(), "copy"), "select_right").tables == ("public.events_1",)


def test_row_security_that_would_hide_rows_is_a_problem(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        "GRANT SELECT ON orders TO {role}",
        "CREATE PUBLICATION shop FOR TABLE orders",
    )
    finding = only(ask(database.as_role(), "copy"), "row_security")
    assert finding.severity is Severity.ERROR
    assert finding.tables == ("public.orders",)
    assert f"ALTER ROLE {database.role} BYPASSRLS" in (finding.remedy or "")
    assert only(ask(database.url), "row_security").severity is Severity.OK

    database.run("ALTER TABLE orders OWNER TO {role}")
    assert only(ask(database.as_role(), "copy"), "row_security").severity is Severity.OK
    database.run("ALTER TABLE orders FORCE ROW LEVEL SECURITY")
    assert only(ask(database.as_role(), "copy"), "row_security").severity is Severity.ERROR
    database.run("ALTER ROLE {role} BYPASSRLS")
    assert only(ask(database.as_role(), "copy"), "row_security").severity is Severity.OK


def test_exactly_the_tables_that_postgres_refuses_to_update_are_named(database: Database) -> None:
    database.run(
        "CREATE TABLE keyed (id int PRIMARY KEY, v int)",
        "CREATE TABLE keyless (id int, v int)",
        "CREATE TABLE keyless_full (id int, v int)",
        "ALTER TABLE keyless_full REPLICA IDENTITY FULL",
        "CREATE TABLE nothing (id int PRIMARY KEY, v int)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "CREATE TABLE indexed (id int NOT NULL UNIQUE, v int)",
        "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_id_key",
        "CREATE TABLE late_key (id int PRIMARY KEY DEFERRABLE, v int)",
        "CREATE TABLE generated_full (id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v) STORED)",
        "ALTER TABLE generated_full REPLICA IDENTITY FULL",
        "CREATE TABLE listed (id int PRIMARY KEY, v int)",
        "CREATE TABLE listed_full (id int PRIMARY KEY, v int)",
        "ALTER TABLE listed_full REPLICA IDENTITY FULL",
        "CREATE TABLE parted (id int, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    )
    as_published = {
        "keyed": "keyed",
        "keyless": "keyless",
        "keyless_full": "keyless_full",
        "nothing": "nothing",
        "indexed": "indexed",
        "late_key": "late_key",
        "generated_full": "generated_full",
        "listed": "listed (v)",
        "listed_full": "listed_full (id)",
        "parted_1": "parted",
    }
    named = ", ".join(as_published.values())
    database.run(f"CREATE PUBLICATION shop FOR TABLE {named} WITH (publish_via_partition_root)")
    refused = set()
    for table in as_published:
        database.run(f"INSERT INTO {table} VALUES (1)")
        try:
            database.run(f"UPDATE {table} SET v = 2")
        except psycopg.Error:
            refused.add(f"public.{table}")

    for mode in ("copy", "both"):
        warned = findings(ask(database.url, mode), "replica_identity")
        assert {f.severity for f in warned} == {Severity.WARNING}
        assert {table for f in warned for table in f.tables} == refused
    report = ask(database.url)
    assert "ALTER TABLE public.keyless REPLICA IDENTITY FULL;" in (findings(report, "replica_identity")[0].remedy or "")
    # A deferrable key tells rows apart at the end of a transaction only.
    assert set(only(report, "primary_key").tables) == {
        f"public.{t}" for t in ("keyless", "keyless_full", "indexed", "late_key", "parted")
    }
    assert only(report, "key_columns").tables == ("public.listed",)


def test_a_table_that_is_only_inserted_into_needs_no_identity(database: Database) -> None:
    database.run(
        "CREATE TABLE events (at timestamptz)",
        "CREATE PUBLICATION shop FOR TABLE events WITH (publish = 'insert, truncate')",
    )
    assert only(ask(database.url), "replica_identity").severity is Severity.OK


def test_generated_columns_that_are_not_published_are_noted(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)",
        "CREATE PUBLICATION shop FOR TABLE orders",
    )
    finding = only(ask(database.url), "generated_columns")
    assert finding.severity is Severity.NOTE
    database.run(finding.remedy or "")
    assert findings(ask(database.url), "generated_columns") == []


def test_a_partition_with_another_identity_than_its_root_is_a_problem(database: Database) -> None:
    database.run(
        "CREATE TABLE events (id int, place text, n int NOT NULL, PRIMARY KEY (id, place)) PARTITION BY LIST (place)",
        "CREATE TABLE east PARTITION OF events FOR VALUES IN ('e')",
        "CREATE TABLE west PARTITION OF events FOR VALUES IN ('w')",
        "CREATE TABLE south PARTITION OF events FOR VALUES IN ('s')",
        "CREATE UNIQUE INDEX east_n ON east (n)",
        "CREATE UNIQUE INDEX west_n ON west (n, place, id)",
        "ALTER TABLE east REPLICA IDENTITY USING INDEX east_n",
        "ALTER TABLE west REPLICA IDENTITY USING INDEX west_n",
        "ALTER TABLE south REPLICA IDENTITY FULL",
        "CREATE PUBLICATION shop FOR TABLE events WITH (publish_via_partition_root)",
    )
    finding = only(ask(database.url), "leaf_identities")
    assert finding.severity is Severity.ERROR
    assert finding.tables == ("public.east",)
    database.run("ALTER PUBLICATION shop SET (publish_via_partition_root = false)")
    assert findings(ask(database.url), "leaf_identities") == []
    database.run("ALTER PUBLICATION shop SET (publish_via_partition_root, publish = 'insert')")
    assert findings(ask(database.url), "leaf_identities") == []
    database.run("ALTER PUBLICATION shop SET (publish = 'insert, update')", finding.remedy or "")
    assert findings(ask(database.url), "leaf_identities") == []


def test_large_values_that_a_row_filter_may_leave_behind_are_warned_of(database: Database) -> None:
    database.run(
        "CREATE TABLE plain (id int PRIMARY KEY, n int)",
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE PUBLICATION shop FOR TABLE plain WHERE (id > 0), orders WHERE (id > 0)",
    )
    finding = only(ask(database.url), "filtered_values")
    assert finding.severity is Severity.WARNING
    assert finding.tables == ("public.orders",)
    assert "public.orders (note)" in finding.message
    database.run(finding.remedy or "")
    assert findings(ask(database.url), "filtered_values") == []


def test_a_deferrable_key_is_said_to_be_none(database: Database) -> None:
    database.run(
        "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)",
        "ALTER TABLE late REPLICA IDENTITY FULL",
        "CREATE PUBLICATION shop FOR TABLE late",
    )
    assert only(ask(database.url), "primary_key").tables == ("public.late",)


def test_a_foreign_table_as_partition_is_a_problem(database: Database) -> None:
    database.run(
        "CREATE FOREIGN DATA WRAPPER elsewhere",
        "CREATE SERVER far FOREIGN DATA WRAPPER elsewhere",
        "CREATE TABLE events (id int) PARTITION BY RANGE (id)",
        "CREATE FOREIGN TABLE events_far PARTITION OF events FOR VALUES FROM (0) TO (10) SERVER far",
        "CREATE PUBLICATION shop FOR TABLE events WITH (publish_via_partition_root)",
    )
    finding = only(ask(database.url), "foreign_partitions")
    assert finding.severity is Severity.ERROR
    assert finding.tables == ("public.events_far",)


def test_types_without_a_decoder_are_noted(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, seen pg_snapshot, many pg_snapshot[], fine text[])",
        "CREATE PUBLICATION shop FOR TABLE orders",
    )
    finding = only(ask(database.url), "column_types")
    assert finding.severity is Severity.NOTE
    assert "public.orders (seen pg_snapshot, many pg_snapshot[])" in finding.message


def test_many_tables_are_named_in_part_but_kept_whole(database: Database) -> None:
    for number in range(8):
        database.run(f"CREATE TABLE t{number} (id int)")
    database.run("CREATE PUBLICATION shop FOR ALL TABLES")
    finding = only(ask(database.url), "replica_identity")
    assert finding.message.endswith("public.t4 and 3 more")
    assert len(finding.tables) == 8


def test_a_pooler_in_between_is_noticed(database: Database) -> None:
    database.run("CREATE PUBLICATION shop")
    with _pooler(database.url) as url:
        report = ask(url)
    assert only(report, "pooler").severity is Severity.WARNING


@contextmanager
def _pooler(url: str) -> Iterator[str]:
    """Passes one connection through, with a key of its own for cancelling, as PgBouncer does."""
    target = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection((str(target.hostname), target.port or 5432)) as backend:
                upward = threading.Thread(target=_pass, args=(client, backend))
                upward.start()
                _pass(backend, client)
                upward.join()

        threading.Thread(target=serve, daemon=True).start()
        yield f"postgresql://postgres@127.0.0.1:{port}{target.path}?sslmode=disable"


def _pass(giver: socket.socket, taker: socket.socket) -> None:
    with suppress(OSError):
        while part := giver.recv(65536):
            key = part.find(b"K\0\0\0\x0c")
            taker.sendall(part if key < 0 else part[: key + 5] + b"\0\0\0\1" + part[key + 9 :])
    with suppress(OSError):
        taker.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def facts(server: EmbeddedPostgres) -> Facts:
    source = PostgresSource(server.url, publication="none")
    with closing(connect(source)) as connection:
        return read_facts(connection, source.publication, source.location)


@pytest.mark.parametrize(
    ("version", "feedback", "copying", "streaming"),
    [
        (150_000, True, Severity.OK, Severity.ERROR),
        (160_000, False, Severity.NOTE, Severity.WARNING),
        (160_000, True, Severity.OK, Severity.NOTE),
    ],
)
def test_a_standby_gives_changes_from_16_on(
    facts: Facts, version: int, feedback: bool, copying: Severity, streaming: Severity
) -> None:
    standby = replace(facts.server, is_standby=True, version=version, standby_feedback=feedback)
    on_standby = replace(facts, server=standby)
    assert [finding.severity for finding in preflight_server.standby_when_copying(on_standby)] == [copying]
    assert [finding.severity for finding in preflight_server.standby_when_streaming(on_standby)] == [streaming]


def test_a_server_newer_than_tested_is_a_warning(facts: Facts) -> None:
    newer = replace(facts, server=replace(facts.server, version=190_000, version_text="19.0"))
    assert [finding.severity for finding in preflight_server.server_version(newer)] == [Severity.WARNING]


def test_a_wrong_password_is_a_finding_and_is_never_shown(server: EmbeddedPostgres) -> None:
    url = server.require_password("locked", "right").replace("right", "tell-nobody")
    report = ask(url)
    assert [(finding.check, finding.severity) for finding in report.findings] == [
        ("source.authentication", Severity.ERROR)
    ]
    for arguments in ([url, "--publication", "shop"], [url, "--publication", "shop", "--json"]):
        code, output = run_command(*arguments)
        assert code == 1
        assert "source.authentication" in output
        assert "tell-nobody" not in output


def test_an_unreachable_server_is_a_finding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    report = ask(f"postgresql://postgres@127.0.0.1:{port}/postgres")
    assert not report.ok
    assert [finding.check for finding in report.findings] == ["source.unreachable"]
    assert report.findings[0].remedy


def test_the_command_ends_with_ready_or_the_number_of_problems(database: Database) -> None:
    arguments = (database.url, "--publication", "shop")
    code, output = run_command(*arguments)
    assert code == 1
    assert output.splitlines()[-1] == "1 problem"
    assert "✘ publication" in output

    database.run("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION shop FOR TABLE orders")
    code, output = run_command(*arguments, "--mode", "copy")
    assert (code, output.splitlines()[-1]) == (0, "ready")
    assert "✔ wal_level" in output


def test_the_command_prints_nothing_but_json_when_asked(database: Database) -> None:
    code, output = run_command(database.as_role(), "--publication", "shop", "--json")
    body = json.loads(output)
    assert code == 1
    assert body["ok"] is False
    assert {finding["check"] for finding in body["findings"] if finding["severity"] == "error"} == {
        "publication",
        "replication_right",
    }


def test_the_command_explains_a_url_it_cannot_read() -> None:
    code, output = run_command("postgresql://user:tell-nobody@host/shop?no_such_option=1", "--publication", "shop")
    assert code == 1
    assert "config.invalid" in output
    assert "tell-nobody" not in output
