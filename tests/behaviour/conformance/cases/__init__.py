"""The hand-written cases, by topic; each module holds `CASES`."""
