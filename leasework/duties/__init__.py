"""The work besides running jobs: schedules, delays, rescue, deadlines and pruning."""
