"""Why the instructions that decode but have no semantics here are refused."""

from __future__ import annotations

_FORMATS = "buffers with a format are used by graphics shaders; compilers of kernels load plain dwords"
_SYNC = "the global data share and global wave sync belong to graphics; the kernel driver grants neither"
_FORMAT_NAMES = tuple(
    f"buffer_{what}_{d16}format_{components}"
    for what in ("load", "store")
    for d16 in ("", "d16_")
    for components in ("x", "xy", "xyz", "xyzw")
)

REFUSED: dict[str, str] = {
    **dict.fromkeys(_FORMAT_NAMES, _FORMATS),
    **dict.fromkeys(("buffer_load_d16_hi_format_x", "buffer_store_d16_hi_format_x"), _FORMATS),
    **dict.fromkeys(
        (f"buffer_load_lds_{kind}" for kind in ("u8", "i8", "u16", "i16", "b32", "format_x")),
        "loads from buffers straight to local memory are not modelled",
    ),
    **dict.fromkeys(
        (f"ds_gws_{name}" for name in ("barrier", "init", "sema_br", "sema_p", "sema_release_all", "sema_v")),
        _SYNC,
    ),
    **dict.fromkeys(("ds_ordered_count", "ds_add_gs_reg_rtn", "ds_sub_gs_reg_rtn"), _SYNC),
    "ds_bvh_stack_rtn_b32": "ray tracing is not modelled",
    **dict.fromkeys(
        ("s_subvector_loop_begin", "s_subvector_loop_end"),
        "loops over the halves of a wave64 are not modelled; compilers of kernels do not emit them",
    ),
    "s_endpgm_ordered_ps_done": "it belongs to pixel shaders",
}
