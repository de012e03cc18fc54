"""Codec: between bytes and objects, in the forms that kube-apiserver reads, writes and stores."""
