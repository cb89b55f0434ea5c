"""Readers of scientific file formats for the ``turbidite`` command, which runs ``python -m turbidite.sources``.

Nothing here is public. The command and the package are of one release, and speak the protocol of `server`.
"""
