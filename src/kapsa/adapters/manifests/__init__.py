"""Kubernetes manifests that are not trusted.

- `manifest`: an object as a dictionary, and its name in messages.
- `yaml_documents`: YAML, read as Kubernetes reads it and within limits.
- `files`: the manifests in a file or directory.
- `pod_templates`: the pods that workloads create.
- `pod_security`: violations of the Pod Security Standards.
- `health`: whether an object is current, in progress or failed.
"""
