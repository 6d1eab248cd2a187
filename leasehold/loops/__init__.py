"""What every service stands on: its loop, waiting with a wake-up, and the recorder of events."""
