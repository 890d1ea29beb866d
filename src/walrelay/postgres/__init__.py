"""All that talks to the source: connection, catalog, publication, snapshot, copy."""
