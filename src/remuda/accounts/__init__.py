"""Accounts, tokens and limits: who may use the herd, and how much of it."""
