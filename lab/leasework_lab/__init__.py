"""The laboratory of leasework: it proves, breaks, shows and measures leasework.

``sim`` runs the real services in a simulated world. ``chaos`` breaks real processes and checks the
promises. ``demo`` shows leasework at work. ``bench`` measures it. ``commands`` has their commands,
``sql`` their statements. leasework itself never imports this package; it finds the commands by
their entry points.
"""
