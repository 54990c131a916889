"""Artifacts: recordings, logs and WARC files in a directory or a bucket, indexed, served and evicted."""
