"""The version of the package, which is the daemon's."""

__version__ = "0.1.0"
