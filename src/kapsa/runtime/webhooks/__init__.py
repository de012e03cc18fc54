"""Webhooks: the API server calls the operator before it writes an object, and to convert versions.

`admission` and `conversion` hold the classes that users subclass; `webhooks` declares which of them an
operator has and where they are reached. `server` runs that declaration: `_review_handler` answers each
AdmissionReview and ConversionReview, `_certificate_sources` provides the serving certificate, from a
directory or from a Secret whose rotation `certificates` computes, and `_registration` keeps the webhook
configurations in the cluster up to date.
"""
