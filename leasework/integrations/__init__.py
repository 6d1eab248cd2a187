"""Frameworks and servers. A module needs the framework that it is named after."""
