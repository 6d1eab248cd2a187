"""How long it takes until each of twenty troubles is said: by ``leasework status``, the dashboard,
the metrics and the alerts.

``make detection`` measures all of them and writes the page; the quickest are tests of every run.
"""
