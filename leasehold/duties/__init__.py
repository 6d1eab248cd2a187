"""What is done beside running jobs: schedules, delays, rescue, deadlines and clearing up."""
