"""The laboratory's commands, which leasework finds by their entry points."""
