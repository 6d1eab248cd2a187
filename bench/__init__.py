"""Side by side with peers and with the raw SQL bound. ``python -m bench --help``."""
