"""`kapsa demo`: environments come, change and go on an embedded devcluster, with a line for each event.

- `command`: the command line.
- `requirements`: checks the programs and packages first.
- `services`: starts the cluster, the servers and the operator.
- `walkthrough`: pushes commits and waits for the results.
- `display`: prints lines and a live table.
- `git_clone`, `push_hook`: the developer's clone, and the webhook that each push sends.
"""
