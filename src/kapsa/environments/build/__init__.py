"""Builds: the objects that turn a commit into an image, and the progress that their status reports.

Without I/O.

- `engines`: selects the engine of a project. A new engine is added here.
- `buildkit`, `kaniko`: builds of Dockerfiles as a `job`, whose first container fetches the `source`.
- `kpack`: builds with buildpacks.
- `identity`: the tag of a commit's image, and the name of its build.
"""
