"""What people and tools see (checks, status, doctor, metrics), and what operators do."""
