"""The ground floor: time, ids, errors, config and logs. Knows nothing of Redis or browsers."""
