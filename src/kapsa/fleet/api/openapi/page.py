"""The OpenAPI document as one HTML page: no script, no font and no style from elsewhere, so it works offline."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["PAGE_POLICY", "render_page"]

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1c2330;background:#fff}
details{border:1px solid #d5dae3;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}
summary{cursor:pointer}code,pre{font:14px/1.45 ui-monospace,monospace}
pre{background:#f4f6f9;padding:.7rem;overflow:auto}
b.method{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem .9rem .15rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#12161d;color:#e4e8ef}pre{background:#1c222c}details{border-color:#39414f}}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

PAGE_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'"
"""The Content-Security-Policy of the page: its own style, and nothing else."""


def render_page(document: Mapping[str, Any]) -> str:
    """Return the page of a document."""
    info = document["info"]
    sections: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            sections.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    body = "".join(f"<h2>{_text(tag)}</h2>{''.join(parts)}" for tag, parts in sorted(sections.items()))
    schemas = "".join(
        _fold(f"<code>{_text(name)}</code>", _json(schema))
        for name, schema in document["components"]["schemas"].items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_text(info["title"])}</title>'
        f"<style>{_STYLE}</style><h1>{_text(info['title'])} {_text(info['version'])}</h1>"
        f'<p>{_text(info["description"])} <a href="/openapi.json">openapi.json</a></p>'
        f"{body}<h2>Types</h2>{schemas}</html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    roles = ", ".join(operation["x-kapsa-roles"]) or "anyone"
    title = f'<b class="method">{method.upper()}</b> <code>{_text(path)}</code> {_text(operation["summary"])}'
    parts = [f"<p>{_text(operation['description'])}</p><p>Roles: {_text(roles)}</p>"]
    if limit := operation.get("x-kapsa-rate-limit"):
        parts.append(f"<p>At most {limit['requests']} requests in {limit['seconds']:g} seconds.</p>")
    if operation["parameters"]:
        rows = "".join(_parameter(each) for each in operation["parameters"])
        parts.append(f"<table><tr><th>Parameter<th>In<th>Meaning{rows}</table>")
    if "requestBody" in operation:
        parts.append("<p>Request</p>" + _json(_first_example(operation["requestBody"]["content"])))
    for status, response in operation["responses"].items():
        if "content" in response:
            parts.append(f"<p>Response {status}</p>{_json(_first_example(response['content']))}")
    errors = ", ".join(status for status in operation["responses"] if status >= "400")
    parts.append(f"<p>Errors: {errors}</p>")
    return _fold(title, "".join(parts))


def _parameter(parameter: Mapping[str, Any]) -> str:
    return (
        f"<tr><td><code>{_text(parameter['name'])}</code><td>{_text(parameter['in'])}"
        f"<td>{_text(parameter['description'])}"
    )


def _first_example(content: Mapping[str, Any]) -> Any:
    media, described = next(iter(content.items()))
    return described.get("example", media)


def _fold(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


def _json(value: Any) -> str:
    return f"<pre>{_text(json.dumps(value, indent=2))}</pre>"


def _text(value: object) -> str:
    return html.escape(str(value))
