"""What can go wrong with watching a pipeline."""

from __future__ import annotations

from walrelay.errors import ConfigError


class ListenAddressError(ConfigError):
    """The address for metrics and health cannot be listened on."""

    code = "config.listen_address"
    default_hint = "Give another one, --metrics HOST:PORT, or end the program that listens there."
