"""The base of every service: its loop, its wake-ups, and the recorder of events."""
