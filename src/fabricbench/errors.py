"""Errors that a user can mend: each prints as one line, never as a traceback."""


class FabricbenchError(Exception):
    """Base of all errors whose message is meant for the user: what is wrong, where, and the mend."""


class ConfigError(FabricbenchError):
    """A mistake in the configuration; the message names key, value and mend."""


class RecordError(FabricbenchError):
    """A record that can't be read: truncated, of another schema version, or not what its name says."""


class LaunchError(FabricbenchError):
    """Ranks that could not be started as the cell asks."""
