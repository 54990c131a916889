"""Fetches a site and writes it as WARC: pure asyncio and files, no Redis."""
