"""What operators need: sweeps of what the dead left behind, metrics, and the doctor."""
