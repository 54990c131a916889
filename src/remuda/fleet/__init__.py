"""Mechanisms that several rooms use, one file each. They get keys as arguments and do not know any room."""
