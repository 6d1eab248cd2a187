"""The chaos campaign: real processes, real faults, histories, and checkers that read them.

``campaign.py`` runs one campaign; ``gate.py`` runs several, with minimums below which a run proves
nothing. ``checkers.py`` and ``check_leases.py`` are pure functions from histories and tables to
violations. ``report.py`` presents the result.
"""
