"""What is wrong with a table's options, or with what they meet."""

from __future__ import annotations

from walrelay.errors import ConfigError, WalrelayError
from walrelay.model.schema import TableSchema


class TableOptionError(ConfigError):
    """An option of a table cannot be honoured for this table."""

    code = "table.option"
    default_hint = "Correct the option named above, in `tables`."


class OptionsLostError(WalrelayError):
    """A table was renamed, and other options are given for its new name than it had under the old one."""

    code = "table.options_lost"
    default_hint = "Give the table's new name, in `tables`, the options that its old name has there, and start again."
    may_pass = True


class KeptRowsTruncatedError(WalrelayError):
    """A table whose deleted rows are kept was truncated: which rows that has deleted nobody tells."""

    code = "table.truncated"
    default_hint = "`walrelay resync` copies the table again, without the rows that were kept until now."
    copies_again = True


class SchemaChangedError(WalrelayError):
    """A table was altered, and its options say that this is not to be followed."""

    code = "table.schema_changed"
    default_hint = "`walrelay resync` copies the table again, with its new columns; or set on_schema_change to follow."
    copies_again = True


class TransformFailedError(WalrelayError):
    """A function on a table's rows has failed, or met rows that it cannot be applied to."""

    code = "table.transform_failed"
    default_hint = (
        "Correct the function (with --debug Spark's own words are shown), start again, and `walrelay resync` the table."
    )
    copies_again = True


def refused(schema: TableSchema, option: str, why: str, hint: str | None = None) -> TableOptionError:
    """The option of this table, and what is wrong with it."""
    context = {"table": str(schema.name), "table_id": schema.id, "option": option}
    return TableOptionError(f"{option} of {schema.name}: {why}", hint=hint, context=context)
