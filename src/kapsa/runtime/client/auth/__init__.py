"""Authentication: kubeconfigs, tokens, certificates, exec plugins and OpenID Connect."""
