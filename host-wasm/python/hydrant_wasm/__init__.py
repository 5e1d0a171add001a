"""Typed API over hydrant.wasm, hydrant's PMI server as a WebAssembly module.

A launcher creates a `Server`, reports to it what happens to its ranks and their connections, and carries out its `outputs`. The
package does no I/O.

The records are those of docs/wasm-abi.md. An enum with fields is a base class, such as `Output`, and a subclass for each variant,
such as `OutputBytes`. Times are in milliseconds where no other unit is named.
"""

from . import ranks, records
from .plugin import AbiVersionError, CallFailed, Plugin, PluginError, Server
from .postcard import UnknownField
from .records import *  # noqa: F403

__all__ = ["AbiVersionError", "CallFailed", "Plugin", "PluginError", "Server", "UnknownField", "ranks"]
__all__ += records.__all__
