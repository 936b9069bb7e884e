"""Sizes as people read them."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: int) -> str:
    """Returns a size with its unit, such as 1.5 MiB."""
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
