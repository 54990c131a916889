"""Every Redis key of Remuda, declared once. Pure: nothing here talks to Redis."""
