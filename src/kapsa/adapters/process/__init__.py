"""Programs and processes.

- `limited_process`: runs a program within limits on time, memory, output and files.
- `tools`: finds git, helm and kubectl, or installs them from wheels.
- `file_lock`: locks between processes.
"""
