"""Delivery of messages that transactions have left in the outbox, at least once each.

- `outbox`: the table: messages in, claims out.
- `mail`: mail over SMTP.
- `webhooks`: signed events over HTTP.
- `dispatcher`: sends what is due.
"""
