"""Kustomizations that are not trusted: `kustomization` builds them with the real kustomize.

`_survey` reads every reachable kustomization first, and rejects references that leave the repository.
"""
