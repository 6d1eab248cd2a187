"""What people and their tools see: checks, status, the doctor and metrics; what operators do."""
