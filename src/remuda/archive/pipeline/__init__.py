"""The process that runs jobs."""
