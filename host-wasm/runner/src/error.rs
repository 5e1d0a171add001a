//! Errors of plugins.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hydrant_abi::{ABI_VERSION, CallError};
use hydrant_core::BackendError;
use hydrant_validator::Violation;

/// A plugin failed, or its file is not a valid plugin. After a failed call the instance refuses every further one.
#[derive(Debug, thiserror::Error)]
#[error("plugin {}: {kind}", file.display())]
pub struct PluginError {
    /// The plugin's file.
    pub file: PathBuf,
    /// What failed.
    pub kind: PluginErrorKind,
}

impl From<PluginError> for BackendError {
    fn from(error: PluginError) -> BackendError {
        BackendError::Other(Box::new(error))
    }
}

/// What failed about a plugin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginErrorKind {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The file is longer than [`FILE_MAX`](crate::FILE_MAX).
    #[error("{len} bytes long, more than the maximum of {max}")]
    TooLong {
        /// Length of the file in bytes.
        len: u64,
        /// Maximum length in bytes.
        max: u64,
    },
    /// The file is not a WebAssembly module, or uses features that are disabled.
    #[error("not a valid WebAssembly module: {0}")]
    InvalidModule(String),
    /// The module has an import.
    #[error("imports {0}: a plugin must have no imports")]
    Import(String),
    /// The module lacks an export, or exports it with another type.
    #[error("not a hydrant plugin: no export {0}")]
    MissingExport(&'static str),
    /// The module's memory has no maximum.
    #[error("memory without a maximum")]
    UnboundedMemory,
    /// The plugin has another version of the ABI.
    #[error("ABI version {0}, this host needs {ABI_VERSION}: rebuild the plugin with host-wasm/build")]
    Version(u32),
    /// The plugin needs more memory than it may have.
    #[error(
        "needs {needed} bytes of memory for these limits, the maximum is {max}: lower the limits (hydrant run: --limit)"
    )]
    OutOfMemory {
        /// Bytes that the plugin requested.
        needed: u64,
        /// Bytes that the plugin may have.
        max: u64,
    },
    /// A call did not return within the [deadline](crate::Settings::deadline).
    #[error("no response within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// A call trapped.
    #[error("trapped: {0}")]
    Trap(String),
    /// A record, a buffer or a range of memory is invalid.
    #[error("invalid record: {0}")]
    InvalidRecord(&'static str),
    /// The plugin returned an error that cannot result from this call.
    #[error("unexpected error: {0}")]
    UnexpectedError(CallError),
    /// A result or an output is invalid.
    #[error("invalid output: {0}")]
    Violation(#[from] Violation),
    /// An earlier call failed.
    #[error("an earlier call failed")]
    Failed,
}
