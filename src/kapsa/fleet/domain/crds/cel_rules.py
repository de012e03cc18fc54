"""CEL rules of one node, compared token by token."""

from collections.abc import Iterator, Sequence

from kapsa.fleet.domain.crds.cel_tokens import tokens, uses_old_self
from kapsa.fleet.domain.crds.changes import NodeChange, breaking, safe, warning
from kapsa.fleet.domain.crds.definitions import RuleText
from kapsa.fleet.domain.crds.findings import ChangeRule

__all__ = ["rule_changes"]

_Key = tuple[tuple[str, ...], bool]


def rule_changes(old: Sequence[RuleText] | None, new: Sequence[RuleText] | None) -> Iterator[NodeChange]:
    """Yield the changes of the rules of a node. Messages are prose: only expressions count."""
    before = {_key(rule): rule for rule in old or ()}
    after = {_key(rule): rule for rule in new or ()}
    removed = [rule for key, rule in before.items() if key not in after]
    for key, rule in after.items():
        if key in before or (tokens(rule.rule), True) in before:
            # A rule that also ran on creation covers one that runs on updates alone.
            continue
        past = next((item for item in removed if item.message and item.message == rule.message), None)
        if past is not None:
            removed.remove(past)
        yield _new_rule(rule, past)
    for rule in removed:
        yield safe(ChangeRule.CEL_RULE_REMOVED, f"the rule {_short(rule.rule)} is gone")


def _key(rule: RuleText) -> _Key:
    """Return what decides: the tokens, and whether the rule runs on creation although it uses oldSelf."""
    return tokens(rule.rule), rule.optional_old_self


def _new_rule(rule: RuleText, past: RuleText | None) -> NodeChange:
    name = ChangeRule.CEL_RULE_ADDED if past is None else ChangeRule.CEL_RULE_CHANGED
    text = f"the rule {_short(rule.rule)} " + ("is new" if past is None else f"replaced {_short(past.rule)}")
    if not uses_old_self(rule.rule):
        return breaking(name, f"{text}: stored objects may break it", validates=True)
    if rule.optional_old_self:
        return breaking(name, f"{text}, and also runs on objects without an old value")
    return warning(name, f"{text}: it restricts updates, not what is stored")


def _short(expression: str) -> str:
    text = " ".join(expression.split())
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
