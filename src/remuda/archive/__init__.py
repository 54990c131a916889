"""Sites to WARC: jobs, the pipelines that run them, and the log that people follow."""
