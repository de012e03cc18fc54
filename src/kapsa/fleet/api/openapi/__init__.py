"""The OpenAPI document and its page.

- `document`: the document, from the routes themselves.
- `examples`: an example for each type of a request or a response.
- `page`: the document as HTML, for reading offline.
"""
