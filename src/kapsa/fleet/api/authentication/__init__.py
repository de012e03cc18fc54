"""Authentication: tokens of an issuer or of this installation, and browser sessions.

- `callers`: an authenticated caller.
- `keys`: keys that tokens are signed with, and the one algorithm of each.
- `jwks`: the keys of an issuer.
- `tokens`: the verification of a token.
- `roles`: the roles in a token.
- `sessions`: browser sessions, their cookie and their CSRF token.
- `oidc`: the OIDC code flow.
- `authenticator`: the caller of a request.
"""
