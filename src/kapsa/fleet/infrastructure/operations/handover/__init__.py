"""The hand-over of blue-green on a cluster.

- `idle_marks`: annotations and conditions that mark a release at rest, in manifests and on live objects.
- `controllers`: scaled to zero and back; what still runs of a release.
- `idle_validation`: evidence about a release at zero replicas.
- `webhook_switch`: webhooks and conversions of one release in place of another's.
- `webhook_proof`: a dry-run write through the webhooks.
"""
