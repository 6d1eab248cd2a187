"""The laboratory's commands, which leasehold finds by their entry points."""
