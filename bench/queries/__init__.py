"""How the harness sees a contender's work in the database: ``UNFINISHED`` (is there any?) and
``FINISHED`` (how many, with history)."""
