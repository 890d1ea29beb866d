"""What a destination needs of Spark, as settings of a session that is yet to start, or as a check of one that runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from walrelay.destinations.capabilities import SparkNeeds
from walrelay.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES, EXTENSIONS = "spark.jars.packages", "spark.sql.extensions"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def settings_for(needs: SparkNeeds, given: Mapping[str, str]) -> dict[str, str]:
    """The user's settings with what is needed; where both name packages or extensions, all of them."""
    if not needs.packages and not needs.extensions and not needs.settings:
        return dict(given)
    # The JVM does the work here: what makes one that only schedules start sooner would hold it up.
    made = {JAVA_OPTIONS: "", **needs.settings, **given}
    for name, wanted in ((PACKAGES, needs.packages), (EXTENSIONS, needs.extensions)):
        listed = [one for one in given.get(name, "").split(",") if one]
        made[name] = ",".join([*listed, *(one for one in wanted if one not in listed)])
    return made


def check_version(needs: SparkNeeds, given: Mapping[str, str], destination: str, installed: str | None = None) -> None:
    """Raise when a session of our own would be of another Spark than the packages are made for. Who names packages has
    chosen them for what is installed."""
    found = installed or version("pyspark")
    if needs.version and PACKAGES not in given and not found.startswith(f"{needs.version}."):
        raise ConfigError(
            f"the packages of destination {destination} are made for Spark {needs.version}, and {found} is installed",
            hint=f"pip install 'pyspark=={needs.version}.*'",
        )


def check_session(needs: SparkNeeds, session: SparkSession, destination: str) -> None:
    """Raise when a session that somebody else has started lacks what is needed."""
    there = (session.conf.get(EXTENSIONS, "") or "").split(",")
    lacking = [one for one in needs.extensions if one not in there]
    if lacking:
        wanted = settings_for(needs, {})
        wanted.pop(JAVA_OPTIONS)
        lines = "; ".join(f"{name}={value}" for name, value in wanted.items())
        raise ConfigError(
            f"the Spark session has not been started for the destination {destination}",
            hint=f"Start it with these settings, or let the Pipeline start one: {lines}",
        )
