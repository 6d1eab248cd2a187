"""Django's migrations of leasework's schema."""
