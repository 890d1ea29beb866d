"""The DDL trigger on a real source: installed, upgraded, refused, removed without a trace, and judged by preflight."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest
from typer.testing import CliRunner

from tests.integration.ddl_kit import Source, fresh_source
from walrelay.cli.app import app
from walrelay.control.migrate_source import migrate_source
from walrelay.control.preflight import Finding, Severity, preflight
from walrelay.destinations.memory import MemoryDestination
from walrelay.errors import (
    ConfigError,
    SourceMigrationNewerError,
    SourceMigrationRightsError,
    SourceMigrationSchemaError,
)
from walrelay.pipeline import Pipeline
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.source_migrations import VERSION, TriggerState, install, trigger_state
from walrelay.stores.postgres import PostgresStore
from walrelay.testing.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres

Server = Callable[[int], EmbeddedPostgres]

CATALOG = """
SELECT 'trigger', evtname::text FROM pg_event_trigger
UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE oid >= 16384
UNION ALL SELECT 'schema', nspname::text FROM pg_namespace
UNION ALL SELECT 'comment', description FROM pg_description WHERE objoid >= 16384
UNION ALL SELECT 'dependency', format('%s %s %s %s', classid, objid, refclassid, refobjid)
          FROM pg_depend WHERE objid >= 16384
UNION ALL SELECT 'shared', format('%s %s %s', classid, objid, refobjid) FROM pg_shdepend
          WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1, 2
"""


@pytest.fixture(
    params=[
        18,
        *(pytest.param(version, marks=pytest.mark.versions) for version in (14, 15, 16, 17)),
    ]
)
def bare(request: pytest.FixtureRequest, postgres_server: Server) -> Iterator[Source]:
    """A source on which nothing was installed, of every version."""
    with fresh_source(postgres_server(request.param), migrated=False) as made:
        yield made


@pytest.fixture
def source(postgres18: EmbeddedPostgres) -> Iterator[Source]:
    """A source on which nothing was installed."""
    with fresh_source(postgres18, migrated=False) as made:
        yield made


@pytest.fixture
def role(source: Source) -> Iterator[str]:
    """A role that may log in and make schemas."""
    name = f"role_{source.slot}"
    database = source.value("SELECT current_database()")
    source.run(f"CREATE ROLE {name} LOGIN", f"GRANT CREATE ON DATABASE {database} TO {name}")
    yield name
    source.run(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def state(source: Source) -> TriggerState:
    with connect(PostgresSource(source.url)) as connection:
        return trigger_state(connection)


def pretend(source: Source, version: int) -> None:
    source.run(f"COMMENT ON EVENT TRIGGER walrelay_ddl IS 'DDL trigger of walrelay, version {version}'")


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["migrate-source", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_it_is_installed_once_and_removed_without_a_trace(bare: Source) -> None:
    before = bare.admin.execute(CATALOG).fetchall()
    assert state(bare) == TriggerState(None, enabled=False, is_standby=False)
    assert bare.uninstall() == "absent"
    assert bare.install() == "installed"
    assert state(bare) == TriggerState(VERSION, enabled=True, is_standby=False)
    installed = bare.admin.execute(CATALOG).fetchall()
    assert bare.install() == "unchanged"
    assert bare.admin.execute(CATALOG).fetchall() == installed
    bare.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    assert set(bare.altered()) == {"t"}
    bare.run("DROP PUBLICATION p", "DROP TABLE t")
    assert bare.uninstall() == "uninstalled"
    assert bare.admin.execute(CATALOG).fetchall() == before


def test_an_older_version_is_upgraded_in_one_transaction(source: Source) -> None:
    source.install()
    pretend(source, 0)
    source.run("DROP EVENT TRIGGER walrelay_drop", "DROP FUNCTION walrelay.table_types(oid)")
    assert source.install() == "upgraded"
    assert state(source).is_current
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    assert set(source.altered()) == {"t"}


def test_an_upgrade_that_fails_leaves_the_old_version_whole(source: Source) -> None:
    source.install()
    pretend(source, 0)
    # Something of another's depends on a function that the upgrade has to replace.
    source.run("CREATE VIEW v AS SELECT walrelay.table_shape(0)")
    before = source.admin.execute(CATALOG).fetchall()
    with pytest.raises(Exception, match="depend"):
        source.install()
    assert source.admin.execute(CATALOG).fetchall() == before


def test_a_newer_version_is_refused_by_name(source: Source) -> None:
    source.install()
    pretend(source, VERSION + 1)
    for attempt in (source.install, source.uninstall):
        with pytest.raises(SourceMigrationNewerError, match=f"version {VERSION + 1}"):
            attempt()
    with pytest.raises(SourceMigrationNewerError):
        command(source.url, "--dry-run")


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER EVENT TRIGGER walrelay_drop DISABLE",
        "ALTER EVENT TRIGGER walrelay_ddl ENABLE",
        "DROP EVENT TRIGGER walrelay_drop",
    ],
)
def test_what_was_disabled_or_is_incomplete_is_repaired(source: Source, damage: str) -> None:
    source.install()
    source.run(damage)
    assert not state(source).enabled
    assert source.install() == "repaired"
    assert state(source).is_current


def test_a_role_that_may_not_is_told_what_it_can_do(source: Source, role: str) -> None:
    before = source.admin.execute(CATALOG).fetchall()
    as_role = PostgresSource(source.url.replace("postgres@", f"{role}@"))
    with pytest.raises(SourceMigrationRightsError) as raised:
        migrate_source(as_role)
    assert raised.value.code == "source.migration_rights"
    assert "superuser" in raised.value.hint and "works without" in raised.value.hint
    assert source.admin.execute(CATALOG).fetchall() == before
    # The hint's own words: whoever is superuser runs what a dry run prints.
    code, printed = command(as_role.url, "--dry-run")
    assert code == 0
    source.run(printed)
    assert state(source).is_current
    assert migrate_source(as_role).action == "unchanged"
    with pytest.raises(SourceMigrationRightsError):
        migrate_source(as_role, remove=True)


def test_a_schema_of_another_role_is_not_built_upon(source: Source, role: str) -> None:
    source.run(f"CREATE SCHEMA walrelay AUTHORIZATION {role}")
    with pytest.raises(SourceMigrationSchemaError) as raised:
        source.install()
    assert "ALTER SCHEMA walrelay OWNER TO CURRENT_USER" in raised.value.hint.replace("\n", " ")
    source.run("ALTER SCHEMA walrelay OWNER TO CURRENT_USER", f"GRANT USAGE, CREATE ON SCHEMA walrelay TO {role}")
    assert source.install() == "installed"
    # A role that may create there cannot make the trigger run its functions.
    with psycopg.connect(source.url.replace("postgres@", f"{role}@"), autocommit=True) as session:
        session.execute(
            "CREATE FUNCTION walrelay.table_shape(anyelement) RETURNS json LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'hijacked'; END$$"
        )
        for name in ("table_shape(oid)", "relay_ddl()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(f"DROP FUNCTION walrelay.{name} CASCADE")  # type: ignore[call-overload]
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    assert set(source.altered()) == {"t"}


def test_a_store_in_the_same_schema_stays(source: Source) -> None:
    source.install()
    store = PostgresStore(source.url, "pipeline")
    store.load_table_replication_states()
    store.close()
    tables = source.value("SELECT count(*) FROM pg_tables WHERE schemaname = 'walrelay'")
    assert isinstance(tables, int) and tables > 0
    assert source.uninstall() == "uninstalled"
    assert source.value("SELECT count(*) FROM pg_tables WHERE schemaname = 'walrelay'") == tables
    assert source.value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'walrelay'::regnamespace") == 0
    assert source.install() == "installed"
    source.uninstall()
    assert source.value("SELECT count(*) FROM pg_tables WHERE schemaname = 'walrelay'") == tables


def test_two_that_install_at_once_do_not_meet(source: Source) -> None:
    with connect(PostgresSource(source.url), autocommit=False) as first:
        first.execute("SELECT pg_advisory_xact_lock(8602276001838031225)")
        with connect(PostgresSource(source.url)) as second:
            second.execute("SET lock_timeout = '300ms'")
            with pytest.raises(Exception, match="lock timeout"):
                install(second)
    assert source.install() == "installed"


def test_the_command_says_what_it_did(source: Source) -> None:
    code, printed = command(source.url, "--dry-run")
    assert code == 0
    assert "would be installed" in printed and "CREATE EVENT TRIGGER walrelay_ddl" in printed
    assert state(source).version is None
    assert "is installed, version 1" in command(source.url)[1]
    assert "there already" in command(source.url)[1]
    assert command(source.url, "--dry-run")[1].startswith("-- ")
    body = json.loads(command(source.url, "--json")[1])
    assert body["action"] == "unchanged" and body["version"] == VERSION and body["sql"] is None
    planned = json.loads(command(source.url, "--uninstall", "--dry-run", "--json")[1])
    assert planned["action"] == "uninstalled" and "DROP EVENT TRIGGER" in planned["sql"]
    assert state(source).is_current
    assert json.loads(command(source.url, "--uninstall", "--json")[1])["action"] == "uninstalled"
    assert "no DDL trigger" in command(source.url, "--uninstall")[1]


def test_the_printed_removal_leaves_nothing(source: Source) -> None:
    before = source.admin.execute(CATALOG).fetchall()
    source.install()
    source.run(command(source.url, "--uninstall", "--dry-run")[1])
    assert source.admin.execute(CATALOG).fetchall() == before


def test_preflight_says_how_shapes_will_be_known_and_never_fails_for_it(source: Source, role: str) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    source.run(f"GRANT SELECT ON t TO {role}", f"ALTER ROLE {role} REPLICATION")
    asked = PostgresSource(source.url.replace("postgres@", f"{role}@"), publication="p")

    def found() -> Finding:
        report = preflight(asked)
        assert report.ok
        (finding,) = [finding for finding in report.findings if finding.check == "ddl_trigger"]
        return finding

    assert found().severity is Severity.OK and "fingerprint" in found().message
    source.install()
    assert found().severity is Severity.OK and "version 1: altered tables are followed exactly" in found().message
    pretend(source, VERSION + 1)
    assert found().severity is Severity.NOTE and "Update" in (found().remedy or "")
    pretend(source, VERSION - 1)
    assert found().severity is Severity.NOTE and "upgrades" in (found().remedy or "")
    pretend(source, VERSION)
    source.run("ALTER EVENT TRIGGER walrelay_ddl DISABLE")
    assert found().severity is Severity.NOTE and "disabled" in found().message
    copying = preflight(asked, mode="copy")
    assert all(finding.check != "ddl_trigger" for finding in copying.findings)


def test_a_pipeline_that_only_copies_has_no_use_for_it() -> None:
    given = PostgresSource("postgresql://postgres@localhost/none", publication="p")
    with pytest.raises(ConfigError, match="mode copy"):
        Pipeline(given, MemoryDestination(), mode="copy", migrate_source=True)
