"""The register map of a GPU target. One generation's map is never used for another.

An array's elements are named ``NAME_0``, ``NAME_1``, as in the kernel's headers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringfence.hardware.amd import registers_gfx9, registers_gfx11, registers_gfx12
from ringfence.hardware.amd.chips import Generation, Target, generation_of
from ringfence.hardware.fields import Register


class RegisterMap:
    """The registers of a generation, by name and by absolute dword offset."""

    def __init__(self, generation: Generation, declared: tuple[type[Register], ...]) -> None:
        self.generation = generation
        self.declared = declared
        self._by_name = {register.__name__: register for register in declared}
        self._by_offset = {offset: register for register in declared for offset in register.offsets()}

    def __getitem__(self, name: str) -> type[Register]:
        """Return the register called ``name``; ``KeyError`` if this generation has none."""
        register = self._by_name.get(name)
        if register is None:
            raise KeyError(f"{self.generation.name} has no register {name}")
        return register

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[type[Register]]:
        return iter(self.declared)

    def offset(self, name: str, index: int = 0) -> int:
        """Return the absolute dword offset of a register, or of element ``index`` of an array."""
        register = self[name]
        if not 0 <= index < register.COUNT:
            raise IndexError(f"{name} has {register.COUNT} elements, no {index}")
        return register.OFFSET + index * register.STRIDE

    def at(self, offset: int) -> type[Register] | None:
        """Return the register at ``offset``; ``None`` if none is declared there."""
        return self._by_offset.get(offset)

    def name_at(self, offset: int) -> str:
        """Return the name at ``offset``, such as ``COMPUTE_USER_DATA_3``; a number if none is declared."""
        register = self.at(offset)
        if register is None:
            return f"register {offset:#06x}"
        if register.COUNT == 1:
            return register.__name__
        return f"{register.__name__}_{(offset - register.OFFSET) // register.STRIDE}"

    def describe(self, offset: int, value: int) -> str:
        """Return ``NAME: FIELD=value ...`` of a register's value."""
        register = self.at(offset)
        text = f"{value:#x}" if register is None else register.describe(value) or "0"
        return f"{self.name_at(offset)}: {text}"


MAPS: dict[Generation, RegisterMap] = {
    generation: RegisterMap(generation, declared)
    for generation, declared in (
        (Generation.GFX9, registers_gfx9.DECLARED),
        (Generation.GFX11, registers_gfx11.DECLARED),
        (Generation.GFX12, registers_gfx12.DECLARED),
    )
}


def registers_for(target: Target) -> RegisterMap:
    """Return the registers of a GPU target such as (11, 0, 0).

    :class:`~ringfence.errors.UnsupportedDevice` names a target of which no register is known.
    """
    return MAPS[generation_of(target)]
