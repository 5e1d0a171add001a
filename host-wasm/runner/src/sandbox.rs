//! A plugin's file, compiled.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hydrant_core::Limits;
use wasmtime::{Config, Engine, ExternType, Module, OptLevel, WasmBacktraceDetails};

use crate::cache::{self, Cache};
use crate::error::{Error, PluginError, Why};
use crate::known::Known;
use crate::plugin::Plugin;
use crate::watch::{TICK, Watch};

/// Longest file of a plugin in bytes.
pub const FILE_MAX: u64 = 4 << 20;

/// How plugins are treated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long one call may take.
    pub deadline: Duration,
    /// A folder for compiled code, made where it is missing; nothing is kept where it is not this user's own.
    pub cache: Option<PathBuf>,
}

impl Default for Settings {
    /// Five seconds a call, and nothing kept.
    fn default() -> Settings {
        Settings { deadline: Duration::from_secs(5), cache: None }
    }
}

/// Where compiled code came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was compiled.
    Compiled,
    /// It was there from an earlier run.
    Cached,
}

/// A plugin's file, compiled. Any number of servers may run in it, each an instance of its own.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
    origin: Origin,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) file: PathBuf,
    pub(crate) module: Module,
    pub(crate) watch: Watch,
    pub(crate) deadline: Duration,
    /// The deadline in ticks of the watch.
    pub(crate) ticks: u64,
}

impl Shared {
    /// An error of this plugin's.
    pub(crate) fn error(&self, why: impl Into<Why>) -> PluginError {
        PluginError { file: self.file.clone(), why: why.into() }
    }
}

impl Sandbox {
    /// Loads a plugin: reads its file, and compiles that.
    ///
    /// # Errors
    /// [`PluginError`] for a file that is none.
    pub fn load(file: &Path, settings: &Settings) -> Result<Sandbox, PluginError> {
        Sandbox::compile(file, &read(file)?, settings)
    }

    /// Compiles a plugin that was [read](read()), perhaps on another machine. `file` is what errors call it.
    ///
    /// # Errors
    /// [`PluginError`] for bytes that are none.
    pub fn compile(file: &Path, bytes: &[u8], settings: &Settings) -> Result<Sandbox, PluginError> {
        let error = |why| PluginError { file: file.to_path_buf(), why };
        let engine = Engine::new(&config()).map_err(|why| error(Why::Module(message(&why))))?;
        let (module, origin) = compile(&engine, bytes, settings.cache.as_deref()).map_err(error)?;
        check(&module).map_err(error)?;
        let deadline = settings.deadline;
        // The first tick may come at once.
        let ticks = deadline.as_millis().div_ceil(TICK.as_millis()) as u64 + 1;
        let watch = Watch::new(&engine, ticks).map_err(|why| error(Why::Read(why)))?;
        let shared = Shared { file: file.to_path_buf(), module, watch, deadline, ticks };
        Ok(Sandbox { shared: Arc::new(shared), origin })
    }

    /// Where its compiled code came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Its file.
    pub fn file(&self) -> &Path {
        &self.shared.file
    }

    /// A server without jobs. `seed` spreads a hash table, and any number will do.
    ///
    /// # Errors
    /// [`Error`]
    pub fn server(&self, limits: Limits, seed: u32) -> Result<Plugin, Error> {
        Plugin::reserve(self, limits, seed)
    }

    /// The server that a [snapshot](hydrant_core::Server::snapshot) is of. `known` is what its host knew of it then.
    ///
    /// # Errors
    /// [`Error`]
    pub fn restore(&self, snapshot: &[u8], known: Known) -> Result<Plugin, Error> {
        Plugin::restore(self, snapshot, known)
    }
}

/// Reads a plugin's file, at most [`FILE_MAX`] bytes.
///
/// # Errors
/// [`PluginError`] for a file that cannot be read or is longer.
pub fn read(file: &Path) -> Result<Vec<u8>, PluginError> {
    let error = |why| PluginError { file: file.to_path_buf(), why };
    let mut bytes = Vec::new();
    let reading = File::open(file).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
    reading.map_err(|why| error(Why::Read(why)))?;
    if bytes.len() as u64 > FILE_MAX {
        let len = std::fs::metadata(file).map_or(bytes.len() as u64, |it| it.len());
        return Err(error(Why::TooLong(len)));
    }
    Ok(bytes)
}

/// What plugins may do, and how they are compiled: no more than the ABI needs.
fn config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_backtrace_max_frames(None)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_simd(false)
        .wasm_tail_call(false)
        .wasm_extended_const(false);
    config
}

/// The module of these bytes, from the cache where it holds it.
fn compile(engine: &Engine, bytes: &[u8], dir: Option<&Path>) -> Result<(Module, Origin), Why> {
    let cache = dir.and_then(|dir| Cache::open(dir).ok());
    let mut compiler = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut compiler);
    let name = cache::name(&[bytes, &compiler.finish().to_le_bytes()]);
    if let Some(code) = cache.as_ref().and_then(|cache| cache.load(&name).ok()) {
        // SAFETY: `code` is what `Module::serialize` gave: it comes whole out of a file that nobody but this user can
        // have written, in a folder of which the same holds, and which hydrant alone writes to.
        if let Ok(module) = unsafe { Module::deserialize(engine, &code) } {
            return Ok((module, Origin::Cached));
        }
    }
    let module = Module::from_binary(engine, bytes).map_err(|why| Why::Module(message(&why)))?;
    if let Some(cache) = cache
        && let Ok(code) = module.serialize()
    {
        // A plugin that cannot be kept is compiled again the next time.
        let _ = cache.store(&name, &code);
    }
    Ok((module, Origin::Compiled))
}

/// Whether it imports nothing and bounds its memory.
fn check(module: &Module) -> Result<(), Why> {
    if let Some(import) = module.imports().next() {
        return Err(Why::Import(format!("{}.{}", import.module(), import.name())));
    }
    match module.get_export("memory") {
        Some(ExternType::Memory(memory)) if memory.maximum().is_some() => Ok(()),
        Some(ExternType::Memory(_)) => Err(Why::Unbounded),
        _ => Err(Why::Export("memory")),
    }
}

/// An error of wasmtime's in one line.
pub(crate) fn message(error: &wasmtime::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}
