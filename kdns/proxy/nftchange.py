"""What changes in kdns's table, and the nft commands that say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kdns.proxy.config import Family
from kdns.proxy.nftables import NFT_FAMILY, TABLE, Data, ElementKey, Place, Step

_ELEMENTS_A_LINE: Final = 1000


@dataclass(slots=True)
class Transaction:
    """What changes in the table, in this order.

    Maps of clients made, chains made or refilled, elements deleted, elements added, and chains and maps removed.
    """

    family: Family
    maps: list[str] = field(default_factory=list)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    delete: dict[str, list[ElementKey]] = field(default_factory=dict)
    add: dict[str, dict[ElementKey, Data]] = field(default_factory=dict)
    remove_chains: tuple[str, ...] = ()
    remove_maps: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.maps or self.chains or self.delete or self.add or self.remove_chains or self.remove_maps)


def lines(change: Transaction) -> Iterator[str]:
    """The transaction as nft commands. Chains are made before they are filled, since they lead to each other."""
    where = f"{NFT_FAMILY[change.family]} {TABLE}"
    address = "ipv4_addr" if change.family == "IPv4" else "ipv6_addr"
    for name in change.maps:
        yield f"add map {where} {name} {{ type {address} : classid; flags dynamic,timeout; }}"
    yield from (f"add chain {where} {name}" for name in change.chains)
    for name, rules in change.chains.items():
        yield f"flush chain {where} {name}"
        for rule in rules:
            yield f"add rule {where} {name} {rule}"
    for name, keys in change.delete.items():
        for some in _some(keys):
            yield f"delete element {where} {name} {{ {', '.join(map(_key, some))} }}"
    for name, elements in change.add.items():
        for some in _some(list(elements)):
            yield f"add element {where} {name} {{ {', '.join(_element(key, elements[key]) for key in some)} }}"
    yield from (f"flush chain {where} {name}" for name in change.remove_chains)
    yield from (f"delete chain {where} {name}" for name in change.remove_chains)
    yield from (f"delete map {where} {name}" for name in change.remove_maps)


def _some(keys: list[ElementKey]) -> Iterator[list[ElementKey]]:
    return (keys[start : start + _ELEMENTS_A_LINE] for start in range(0, len(keys), _ELEMENTS_A_LINE))


def _key(key: ElementKey) -> str:
    return " . ".join(map(str, key))


def _element(key: ElementKey, data: Data) -> str:
    match data:
        case None:
            return _key(key)
        case Place(address, port):
            return f"{_key(key)} : {address} . {port}"
        case Step(verdict, comment):
            return f'{_key(key)} comment "{comment}" : {verdict}'
        case _:
            return f"{_key(key)} : {data}"
