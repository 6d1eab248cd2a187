"""The chaos campaign: real processes, real faults, histories, and checkers that read them.

``campaign.py`` runs one campaign, ``gate.py`` several of them with the rules below which a run
proves nothing; ``checkers.py`` and ``check_leases.py`` are pure functions from what was written
to violations; ``report.py`` shows it to people.
"""
