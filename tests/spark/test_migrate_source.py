"""A pipeline that installs the DDL trigger when it starts."""

from __future__ import annotations

import pytest

from tests.spark.live_kit import Live
from walrelay.errors import SourceMigrationRightsError
from walrelay.postgres.connection import connect
from walrelay.postgres.source import PostgresSource
from walrelay.postgres.source_migrations import trigger_state
from walrelay.testing.assertions import assert_replicated

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_a_pipeline_installs_the_trigger_once_at_its_start_and_works_as_before(live: Live) -> None:
    live.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    with live.running(migrate_source=True) as pipeline:
        live.wait_current(pipeline)
        assert "the DDL trigger on the source is installed" in live.heard.notices
        live.sql("ALTER TABLE t ADD COLUMN more int", "INSERT INTO t VALUES (2, 2, 2)")
        live.wait_current(pipeline)
    assert_replicated(live.source, live.file)
    with connect(live.source) as connection:
        assert trigger_state(connection).is_current
    with live.running(migrate_source=True) as pipeline:
        live.sql("INSERT INTO t VALUES (3, 3, 3)")
        live.wait_current(pipeline)
        assert not any("trigger" in notice for notice in live.heard.notices)
    assert_replicated(live.source, live.file)


def test_a_pipeline_that_may_not_install_it_says_so_before_it_makes_anything(live: Live) -> None:
    role = f"plain_{live.slot}"
    live.sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE t",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT SELECT ON t TO {role}",
    )
    live.source = PostgresSource(live.url.replace("postgres@", f"{role}@"), publication="p")
    try:
        with pytest.raises(SourceMigrationRightsError):
            live.pipeline(migrate_source=True).run(until="caught-up")
        assert not live.log.exists() and not live.file.exists()
    finally:
        live.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
