"""The laboratory of leasehold: it proves, breaks, shows and measures leasehold.

``sim`` runs the real services in a simulated world. ``chaos`` breaks real processes and checks the
promises. ``demo`` shows leasehold at work. ``bench`` measures it. ``commands`` has their commands,
``sql`` their statements. leasehold itself never imports this package; it finds the commands by
their entry points.
"""
