"""Django's migrations of leasehold's schema."""
