"""Sources: the repositories of projects, their branches, and the previews these get.

`listings` lists the branches and pull requests through `repository_access`; `poll_schedule` decides when, and
`git_webhook` behind `webhook_server` makes it sooner. `previews` plans which branches get an environment, and
`trust` decides which commits may see secrets.
"""
