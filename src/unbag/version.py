"""The version of the package."""

from importlib import metadata

__all__ = ["unbag_version"]


def unbag_version() -> str:
    """Version of the installed package."""
    try:
        return metadata.version("unbag")
    except metadata.PackageNotFoundError:  # the source without an installation
        return "unknown"
