"""How long it takes until each of 25 troubles is said: by ``leasework status``, the dashboard,
the metrics and the alerts.

``make detection`` measures all of them and writes the page; the quickest are tests of every run.
"""
