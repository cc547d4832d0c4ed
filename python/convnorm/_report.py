"""What became of the norms of a network, and what timing said."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Optional

from torch import nn

from ._patterns import Match

#: Why a chain is left alone that was timed.
SLOWER = "fused it would be slower"


@dataclass(frozen=True)
class Entry:
    """One norm of the network, or a convolution without one."""

    name: str  # of the norm or convolution, or of the module that calls it
    fused: bool
    text: str  # the chain, or why it was left alone
    gain: Optional[float] = None  # time as it stands / time fused, where that was measured


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """By name, numbers in it by their value: 2 before 10."""
    return sorted(entries, key=lambda entry: [
        int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", entry.name)])


def _in_words(gain: Optional[float]) -> str:
    if gain is None:
        return ""
    return f", {min(gain, 0.99) if gain < 1 else gain:.2f} times as fast"  # what is slower never rounds to 1.00


@dataclass
class FusionReport:
    """What was fused and what was not. Prints as a table; iterating gives the entries."""

    model: nn.Module
    entries: list[Entry] = field(default_factory=list)

    @property
    def fused(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.fused]

    @property
    def left_alone(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.fused]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __str__(self) -> str:
        if not self.entries:
            return "no GroupNorm found"
        width = max(len(entry.name) for entry in self.entries)
        return "\n".join(f"{entry.name:<{width}}  {'fused' if entry.fused else 'left '}  {entry.text}" +
                         _in_words(entry.gain) for entry in self.entries)


@dataclass
class Choice:
    """What timing said of the chains of one graph, by the name of their norm or convolution."""

    slower: dict[str, float] = field(default_factory=dict)  # left alone
    faster: dict[str, float] = field(default_factory=dict)

    def note(self, matches: list[Match], gains: list[Optional[float]]) -> None:
        for match, gain in zip(matches, gains):
            if gain is not None:
                self.faster.pop(match.name, None)
                (self.faster if gain >= 1 else self.slower)[match.name] = gain

    def takes(self, match: Match) -> bool:
        return match.name in self.faster if match.norm is None else match.name not in self.slower
