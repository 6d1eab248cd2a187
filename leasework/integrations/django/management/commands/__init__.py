"""One module for each command, as Django requires."""
