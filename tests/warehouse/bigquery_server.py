"""Runs local-bigquery, in its own environment: `python bigquery_server.py PORT DIRECTORY`. Not a test.

DuckDB looks for its extensions below the home directory, and would fetch them; they are in wheels here.
"""

from __future__ import annotations

import importlib
import inspect
import os
import platform
import sys
from pathlib import Path

EXTENSIONS = ("ducklake", "icu", "json", "sqlite_scanner")
NOT_INLINED, INLINED_ROWS = "DATA_INLINING_ROW_LIMIT 0", 5000
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def link_extensions(home: Path) -> None:
    system = "osx" if sys.platform == "darwin" else "linux"
    for name in EXTENSIONS:
        package = importlib.import_module(f"duckdb_extension_{name}")
        (found,) = Path(str(package.__file__)).parent.glob("extensions/*/*.duckdb_extension")
        target = home / ".duckdb" / "extensions" / found.parent.name / f"{system}_{MACHINES[platform.machine()]}"
        target.mkdir(parents=True, exist_ok=True)
        (target / found.name).symlink_to(found)


if __name__ == "__main__":
    port, directory = sys.argv[1], Path(sys.argv[2])
    os.environ["HOME"] = str(directory)
    link_extensions(directory)
    import uvicorn

    functions = importlib.import_module("local_bigquery.sql.dialect").FUNCTIONS
    # Those of geography need an extension that is in no wheel, and nothing here uses them.
    functions[:] = [one for one in functions if one.stem != "geography"]
    # Small tables stay in its catalog: in Parquet files that DuckDB writes -0.0 becomes 0.0 where both are.
    database = importlib.import_module("local_bigquery.engine.database")
    attach = inspect.getsource(database._attach)
    assert NOT_INLINED in attach, "another version of the emulator"
    exec(attach.replace(NOT_INLINED, f"{NOT_INLINED[:-1]}{INLINED_ROWS}"), vars(database))
    settings = importlib.import_module("local_bigquery.settings").settings
    settings.data_dir, settings.default_project_id = directory / "data", "walrelay-test"
    uvicorn.run("local_bigquery:app", host="127.0.0.1", port=int(port), log_level="warning")
