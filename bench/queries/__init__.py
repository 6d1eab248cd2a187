"""How the harness sees a contender's work: ``unfinished`` (is there any?) and ``finished`` (how
many, with history)."""
