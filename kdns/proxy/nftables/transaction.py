"""Changes of kdns's table, and the nft commands that carry them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kdns.net import Family
from kdns.proxy.nftables.objects import NFT_FAMILY, TABLE, Chain, Data, ElementKey, element, element_key

_ELEMENTS_A_LINE: Final = 1000


@dataclass(slots=True)
class Transaction:
    """Changes of the table, in this order: chains made or refilled, elements deleted, elements added.

    They are by name of the chain or set.
    """

    family: Family
    chains: dict[str, Chain] = field(default_factory=dict)
    delete: dict[str, list[ElementKey]] = field(default_factory=dict)
    add: dict[str, dict[ElementKey, Data]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chains or self.delete or self.add)


def commands(change: Transaction) -> Iterator[str]:
    """Yields the transaction as nft commands. Chains are made before they are filled, since they lead to each other."""
    table = f"{NFT_FAMILY[change.family]} {TABLE}"
    yield from (f"add chain {table} {name}" for name in change.chains)
    for name, chain in change.chains.items():
        yield f"flush chain {table} {name}"
        yield from (f"add rule {table} {name} {rule}" for rule in chain.rules)
    for name, keys in change.delete.items():
        for some in _batches(keys):
            yield f"delete element {table} {name} {{ {', '.join(map(element_key, some))} }}"
    for name, elements in change.add.items():
        for some in _batches(list(elements)):
            yield f"add element {table} {name} {{ {', '.join(element(key, elements[key]) for key in some)} }}"


def _batches(keys: list[ElementKey]) -> Iterator[list[ElementKey]]:
    return (keys[start : start + _ELEMENTS_A_LINE] for start in range(0, len(keys), _ELEMENTS_A_LINE))
