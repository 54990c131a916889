"""The JSON API and the dashboard: what people and their tools look at."""
