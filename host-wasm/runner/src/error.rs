//! What can be wrong with a plugin.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hydrant_core::Fault;

use crate::abi::ABI;
use crate::known::Nonsense;
use crate::sandbox::FILE_MAX;

/// Why a call was of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host's mistake, or a limit: the core's own word for it. Nothing was changed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The plugin's mistake. It is of no use any more.
    #[error(transparent)]
    Plugin(#[from] PluginError),
}

/// What is wrong with a plugin, and which it is.
#[derive(Debug, thiserror::Error)]
#[error("the plugin {}: {why}", file.display())]
pub struct PluginError {
    /// Its file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with a plugin.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The file is longer than [`FILE_MAX`].
    #[error("has {0} bytes, and a plugin at most {FILE_MAX}")]
    TooLong(u64),
    /// The file is no WebAssembly module.
    #[error("is no WebAssembly module that can be run: {0}")]
    Module(String),
    /// It wants something of its host.
    #[error("asks its host for {0}, and a plugin may ask for nothing")]
    Import(String),
    /// It lacks something that plugins have.
    #[error("is no plugin of hydrant's: it has no {0}")]
    Export(&'static str),
    /// It declares no maximum for its memory.
    #[error("does not say how much memory it may take at most")]
    Unbounded,
    /// It speaks another version of the ABI.
    #[error("speaks version {0} of the ABI, and this host version {ABI}: build it anew (host-wasm/build)")]
    Version(u32),
    /// It was given less memory than the job needs.
    #[error("needs {wanted} bytes of memory for these limits, and may have {cap}: lower them with --limit")]
    Memory {
        /// What it asked for, in bytes.
        wanted: u64,
        /// What it may have.
        cap: u64,
    },
    /// A call took too long.
    #[error("did not answer within {} s", .0.as_secs_f64())]
    Deadline(Duration),
    /// It broke off.
    #[error("broke off: {0}")]
    Trap(String),
    /// A record or its place is none that the ABI knows.
    #[error("answered with nonsense: {0}")]
    Record(&'static str),
    /// It refused what no plugin refuses.
    #[error("refused a call that was in order")]
    Refused,
    /// It said what cannot be.
    #[error("said what cannot be: {0}")]
    Nonsense(#[from] Nonsense),
    /// It has failed before.
    #[error("has failed before and cannot go on")]
    Over,
}
