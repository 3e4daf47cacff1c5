"""The package file, and a package on a device."""

from ringfence.package.format import (
    InputLayout,
    Manifest,
    Package,
    decode_package,
    encode_package,
    read_package,
    write_package,
)

__all__ = [
    "InputLayout",
    "Manifest",
    "Package",
    "decode_package",
    "encode_package",
    "read_package",
    "write_package",
]
