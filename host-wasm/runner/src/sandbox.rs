//! Compiled plugin file.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hydrant_abi::exports;
use hydrant_reactor::file::{Input, Taken};
use wasmtime::{Config, Engine, ExternType, Module, OptLevel, WasmBacktraceDetails};

use crate::cache::{self, Cache};
use crate::error::{PluginError, PluginErrorKind};
use crate::ticker::{TICK, Ticker};

/// Maximum length of a plugin file in bytes.
pub const FILE_MAX: u64 = 4 << 20;

/// Settings of a [`Sandbox`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long one call may take. It is exceeded by at most 100 ms.
    pub deadline: Duration,
    /// Folder for compiled code. It is created if it is missing, and unused if it belongs to another user or others may
    /// write to it.
    pub cache: Option<PathBuf>,
    /// Whether traps are found by handlers of SIGSEGV, SIGILL and SIGFPE, which the process then has. Without them compiled
    /// code checks each access itself, which takes longer.
    pub signal_handlers: bool,
}

impl Default for Settings {
    /// Five seconds a call, no cache, and handlers of signals.
    fn default() -> Settings {
        Settings { deadline: Duration::from_secs(5), cache: None, signal_handlers: true }
    }
}

/// Where compiled code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was compiled now.
    Compiled,
    /// It was loaded from the cache.
    Cached,
}

/// A compiled plugin file. Each server gets an instance of its own.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
    origin: Origin,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) file: PathBuf,
    pub(crate) module: Module,
    pub(crate) ticker: Ticker,
    pub(crate) deadline: Duration,
    /// The deadline in ticks.
    pub(crate) ticks: u64,
}

impl Shared {
    /// Returns an error that names this plugin's file.
    pub(crate) fn error(&self, kind: impl Into<PluginErrorKind>) -> PluginError {
        PluginError { file: self.file.clone(), kind: kind.into() }
    }
}

impl Sandbox {
    /// Reads and compiles a plugin file.
    ///
    /// # Errors
    /// [`PluginError`] if the file cannot be read or is not a valid plugin.
    pub fn load(file: &Path, settings: &Settings) -> Result<Sandbox, PluginError> {
        Sandbox::compile(file, &read(file)?, settings)
    }

    /// Compiles the bytes of a plugin file. They may have been [read](read()) on another machine. Errors name `file`.
    ///
    /// # Errors
    /// [`PluginError`] if the bytes are not a valid plugin.
    pub fn compile(file: &Path, bytes: &[u8], settings: &Settings) -> Result<Sandbox, PluginError> {
        let error = |kind| PluginError { file: file.to_path_buf(), kind };
        let engine = Engine::new(&config(settings))
            .map_err(|e| error(PluginErrorKind::InvalidModule(one_line(&e))))?;
        let (module, origin) = compile(&engine, bytes, settings.cache.as_deref()).map_err(error)?;
        check(&module).map_err(error)?;
        let deadline = settings.deadline;
        // The first tick may follow the start of a call at once.
        let ticks = deadline.as_millis().div_ceil(TICK.as_millis()) as u64 + 1;
        let ticker = Ticker::new(&engine, ticks).map_err(|e| error(PluginErrorKind::Read(e)))?;
        let shared = Shared { file: file.to_path_buf(), module, ticker, deadline, ticks };
        Ok(Sandbox { shared: Arc::new(shared), origin })
    }

    /// Returns where the compiled code came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the plugin's file.
    pub fn file(&self) -> &Path {
        &self.shared.file
    }
}

/// Reads a plugin file.
///
/// # Errors
/// [`PluginError`] if the file cannot be read or is longer than [`FILE_MAX`].
pub fn read(file: &Path) -> Result<Vec<u8>, PluginError> {
    let error = |kind| PluginError { file: file.to_path_buf(), kind };
    let mut bytes = Vec::new();
    let reading = Input::open(file, Taken::Streams)
        .map_err(io::Error::from)
        .and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
    reading.map_err(|e| error(PluginErrorKind::Read(e)))?;
    if bytes.len() as u64 > FILE_MAX {
        let len = std::fs::metadata(file).map_or(bytes.len() as u64, |metadata| metadata.len());
        return Err(error(PluginErrorKind::TooLong { len, max: FILE_MAX }));
    }
    Ok(bytes)
}

/// Returns wasmtime's configuration. Every WebAssembly feature that the ABI does not need is off.
fn config(settings: &Settings) -> Config {
    let mut config = Config::new();
    config
        .signals_based_traps(settings.signal_handlers)
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_backtrace_max_frames(None)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_simd(true)
        .wasm_tail_call(false)
        .wasm_extended_const(false);
    config
}

/// Compiles a module, or loads its compiled code from the cache.
fn compile(engine: &Engine, bytes: &[u8], dir: Option<&Path>) -> Result<(Module, Origin), PluginErrorKind> {
    let cache = dir.and_then(|dir| Cache::open(dir).ok());
    let mut compiler = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut compiler);
    let name = cache::name(&[bytes, &compiler.finish().to_le_bytes()]);
    if let Some(code) = cache.as_ref().and_then(|cache| cache.load(&name).ok()) {
        // SAFETY: `code` is a complete result of `Module::serialize`: its digest is correct, and only this user can write
        // to the file and to its folder, which hydrant alone uses.
        if let Ok(module) = unsafe { Module::deserialize(engine, &code) } {
            return Ok((module, Origin::Cached));
        }
    }
    let module =
        Module::from_binary(engine, bytes).map_err(|e| PluginErrorKind::InvalidModule(one_line(&e)))?;
    if let Some(cache) = cache
        && let Ok(code) = module.serialize()
    {
        // A plugin that cannot be cached is compiled again next time.
        let _ = cache.store(&name, &code);
    }
    Ok((module, Origin::Compiled))
}

/// Checks that the module has no imports and a memory with a maximum.
fn check(module: &Module) -> Result<(), PluginErrorKind> {
    if let Some(import) = module.imports().next() {
        return Err(PluginErrorKind::Import(format!("{}.{}", import.module(), import.name())));
    }
    match module.get_export(exports::MEMORY) {
        Some(ExternType::Memory(memory)) if memory.maximum().is_some() => Ok(()),
        Some(ExternType::Memory(_)) => Err(PluginErrorKind::UnboundedMemory),
        _ => Err(PluginErrorKind::MissingExport(exports::MEMORY)),
    }
}

/// Formats an error of wasmtime in one line.
pub(crate) fn one_line(error: &wasmtime::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}
