"""Admission plugins of a default kube-apiserver that need one module each."""
