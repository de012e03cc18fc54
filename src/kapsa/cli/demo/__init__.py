"""`kapsa demo`: stories on embedded devclusters, with a line for each event.

- `command`: the command line, and the story of environments that come, change and go.
- `fleet`: the story of an operator that is rolled out over ten clusters.
- `requirements`: checks the programs and packages first.
- `services`: starts the cluster, the servers and the operator.
- `walkthrough`: pushes commits and waits for the results.
- `display`, `progress_lines`: print lines and a live table.
- `git_clone`, `push_hook`: the developer's clone, and the webhook that each push sends.
"""
