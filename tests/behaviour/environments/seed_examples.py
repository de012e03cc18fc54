"""The examples of the specifications, unchanged except for one invalid label value."""

from __future__ import annotations

__all__ = ["COMMIT", "ENVIRONMENT", "FILES", "PREVIEW", "PROJECT"]

PROJECT = """
apiVersion: catalyst.catalyst.dev/v1alpha1
kind: Project
metadata:
  name: my-project
  namespace: my-team # Lives in the Team Namespace
spec:
  source:
    repositoryUrl: "https://github.com/org/repo"
    branch: "main"
  deployment:
    type: "helm" # or "manifest", "kustomize"
    path: "./charts/app"
    values:
      image:
        repository: "registry.cluster.local/org/repo"
  resources:
    defaultQuota:
      cpu: "1"
      memory: "2Gi"
"""
ENVIRONMENT = """
apiVersion: catalyst.catalyst.dev/v1alpha1
kind: Environment
metadata:
  name: pr-123
  namespace: my-team-my-project # Lives in the Project Namespace
  labels:
    catalyst.dev/team: "my-team"
    catalyst.dev/project: "my-project"
    catalyst.dev/environment: "pr-123"
    catalyst.dev/branch: "feature-login"
  annotations:
    catalyst.dev/branch: "feature/login"
spec:
  projectRef:
    name: my-project
  type: "development" # or "deployment" (prod/staging)
  source:
    commitSha: "a1b2c3d4..."
    branch: "feature/login"
    prNumber: 123
  config:
    envVars:
      - name: DEBUG
        value: "true"
status:
  phase: "Ready" # Pending, Building, Deploying, Failed, Ready
  url: "https://pr-123.preview.catalyst.dev"
  conditions:
    - type: "NamespaceReady"
      status: "True"
    - type: "BuildReady"
      status: "True"
    - type: "DeploymentReady"
      status: "True"
"""
PREVIEW = """
apiVersion: devops.orima.com/v1
kind: PreviewEnvironment
metadata:
  name: pr-42-env
  namespace: preview-environments
spec:
  pr_number: 42
  branch_name: "feature/my-feature"
  image: "youruser/my-app"
  image_tag: "a3f9c2d"
  ttl_seconds: 3600  # optional: auto-delete after 1 hour
"""

FILES = {
    "charts/app/Chart.yaml": """\
apiVersion: v2
name: app
version: 0.1.0
""",
    "charts/app/values.yaml": """\
image:
  repository: app
  tag: latest
env: []
""",
    "charts/app/templates/app.yaml": """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
        env: {{ toJson .Values.env }}
        ports: [{name: http, containerPort: 8080}]
---
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
""",
}
"""The files in the repository of the examples. The commit below contains exactly these."""

COMMIT = """\
tree TREE
author A Developer <developer@example.com> 1767225600 +0000
committer A Developer <developer@example.com> 1767225600 +0000

Add the login page

Change-Id: 10000000016a25d3
"""
"""A commit whose name begins with a1b2c3d4, as in the example: its Change-Id was searched for."""
