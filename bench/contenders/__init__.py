"""What is measured. Each module here runs in its contender's own environment, so it imports
nothing but the standard library, ``bench.ledger`` and its contender."""
