"""What was used, by whom and when: sessions, jobs, requests and bytes per account in fifteen-minute steps."""
