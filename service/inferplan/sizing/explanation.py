"""How a figure came to be, as data: quantities, calculation steps, warnings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantity:
    """A named number with its unit (`s`, `B`, `tokens/s`; empty for plain numbers)."""

    symbol: str
    value: float
    unit: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class CalculatedValue:
    """One result with the formula and the inputs that it follows from."""

    symbol: str
    description: str
    formula: str
    inputs: tuple[Quantity, ...]
    value: float
    unit: str = ""

    def as_input(self) -> Quantity:
        """This result as the input of a later one."""
        return Quantity(self.symbol, self.value, self.unit, self.description)


@dataclass(frozen=True, slots=True)
class CalculationStep:
    """A numbered step of a calculation; `values` are in the order in which they are computed."""

    number: int
    title: str
    values: tuple[CalculatedValue, ...]


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """Something that the reader should know.

    `code` is stable, `message` is for people, `quantities` are the numbers that the message states, for programs.
    """

    code: str
    message: str
    quantities: tuple[Quantity, ...] = ()

    def quantity(self, symbol: str) -> float:
        """The value of the quantity called `symbol`. Raises KeyError if the warning states none of that name."""
        for quantity in self.quantities:
            if quantity.symbol == symbol:
                return quantity.value
        raise KeyError(symbol)
