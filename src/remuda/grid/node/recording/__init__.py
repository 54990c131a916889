"""The video of a session: pictures of its browser, encoded while it runs, with its client's messages."""
