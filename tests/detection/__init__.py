"""How long it takes until each of fifteen troubles is said: by ``leasehold status``, by the
dashboard and by the metrics.

``make detection`` measures all of them and writes the page; the quickest are tests of every run.
"""
