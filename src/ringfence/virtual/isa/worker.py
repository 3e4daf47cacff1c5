"""The compiler process: translation requests on standard input, replies on the pipe of the last argument."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback

import msgspec

from ringfence.errors import CompileError
from ringfence.virtual.isa import jit

# LLVM splits live ranges for better code, and spends minutes on it in programs with thousands of blocks. With
# this limit one of 8,400 instructions takes 8 s instead of 28, and ordinary ones get the same code.
SPLIT_LESS = "-huge-size-for-split=1000"

TRANSLATORS = {
    "ir3": "ringfence.virtual.isa.ir3.translate",
    "rdna": "ringfence.virtual.isa.rdna.translate",
}


def compile_request(request: jit.Request) -> jit.Compiled:
    """Translate and compile in this process; :class:`CompileError` if the program cannot be translated."""
    started = time.monotonic()
    translator = importlib.import_module(TRANSLATORS[request.isa])
    text, meta = translator.translate(request.payload, request.lanes)
    code = jit.compile_ir(text)
    return jit.Compiled(code, {**meta, "milliseconds": int(1e3 * (time.monotonic() - started))})


def answer(data: bytes) -> jit.Reply:
    """Return the reply to an encoded request. Whatever goes wrong, the process must answer."""
    try:
        return jit.Reply(compile_request(msgspec.msgpack.decode(data, type=jit.Request)))
    except jit.TranslationError as error:
        return jit.Reply(
            error=str(error), pc=error.pc, instruction=error.instruction, internal=error.internal
        )
    except CompileError as error:
        return jit.Reply(error=str(error))
    except Exception:  # a bug of the translator: the caller gets the whole traceback
        return jit.Reply(error=f"the translator failed:\n{traceback.format_exc()}", internal=True)


def main() -> None:
    """Serve requests until the input ends. What an interrupt from the keyboard means, the client decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    binding, _, _ = jit.host()
    binding.set_option("ringfence", SPLIT_LESS)
    with os.fdopen(int(sys.argv[-1]), "wb") as output:
        while (data := jit.read_frame(sys.stdin.buffer)) is not None:
            jit.write_frame(output, msgspec.msgpack.encode(answer(data)))


if __name__ == "__main__":
    main()
