//! Plugin of a sandboxed server and the cache of its compiled code.

use std::env;
use std::path::{Path, PathBuf};

use hydrant_control::protocol::PluginFile;
use hydrant_core::server::Consumed;
use hydrant_core::{Backend, BackendError, Input, Limits, Output, Server, Time};
use hydrant_driver::OwnedServer;
use hydrant_wasm::{Plugin as PluginServer, Sandbox, Settings, Validator, Violation};

use super::Replaceable;
use super::saved::Saved;
use super::spare::Primary;
use crate::error::RunError;
use crate::plan::{Plugin, Spare};

const FILE: &str = "hydrant.wasm";
/// Environment variable with the path of the plugin.
const VARIABLE: &str = "HYDRANT_WASM";

/// Has a plugin make a server.
pub(crate) fn server(sandbox: &Sandbox, limits: Limits, seed: u32) -> Result<PluginServer, RunError> {
    Ok(sandbox.server(limits, seed)?)
}

/// Has a plugin go on with a state.
pub(crate) fn restore(sandbox: &Sandbox, saved: Saved) -> Result<PluginServer, RunError> {
    Ok(sandbox.restore(&saved.state, saved.validator)?)
}

impl Replaceable for PluginServer {
    fn save(&mut self) -> Result<Saved, RunError> {
        Ok(Saved { state: self.snapshot()?, is_plugins: true, validator: self.validator().clone() })
    }

    fn retire(self: Box<Self>) {}
}

impl Primary for PluginServer {
    fn noun(&self) -> &'static str {
        "plugin"
    }

    fn name(&self) -> String {
        format!("plugin {}", self.file().display())
    }
}

/// A server in this process that goes on with the state of a plugin. Its outputs are checked as the plugin's.
#[derive(Debug)]
pub(crate) struct Checked {
    server: OwnedServer,
    validator: Validator,
}

impl Checked {
    pub(crate) fn new(server: OwnedServer, validator: Validator) -> Checked {
        Checked { server, validator }
    }
}

impl Replaceable for Checked {
    fn save(&mut self) -> Result<Saved, RunError> {
        let validator = self.validator.clone();
        Ok(Saved { is_plugins: true, validator, ..Saved::of(self.server.server()) })
    }

    fn retire(self: Box<Self>) {}
}

impl Backend for Checked {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let consumed = self.server.handle(now, input)?;
        let checked = self.validator.check_input(now, &input, consumed, self.server.poll_at());
        checked.map_err(violation)?;
        Ok(consumed)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        let output = self.server.poll(buf)?;
        let checked = match &output {
            Some(output) => self.validator.check_output(output),
            None => self.validator.check_silence(),
        };
        checked.map_err(violation)?;
        Ok(output)
    }

    fn poll_at(&self) -> Option<Time> {
        self.server.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.server.limits()
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        self.server.inspect()
    }
}

fn violation(violation: Violation) -> BackendError {
    BackendError::Other(format!("the state that the plugin has left is invalid: {violation}").into())
}

/// Finds a plugin and reads it.
pub(crate) fn read(plugin: &Plugin, spare: Option<Spare>) -> Result<PluginFile, RunError> {
    let file = find(plugin)?;
    let code = hydrant_wasm::read(&file).map_err(RunError::Plugin)?;
    let (deadline, spare) = (Settings::default().deadline, spare.is_some());
    Ok(PluginFile { file: file.into(), code, deadline, spare })
}

/// Compiles a plugin, unless its code is there from an earlier run.
pub(crate) fn load(plugin: &PluginFile) -> Result<Sandbox, RunError> {
    let settings = Settings { deadline: plugin.deadline, cache: cache(), ..Settings::default() };
    Sandbox::compile(Path::new(&plugin.file), &plugin.code, &settings).map_err(RunError::Plugin)
}

/// Finds the plugin: the user's choice, else beside this program, else in the `lib` folder beside the program's folder.
pub(crate) fn find(plugin: &Plugin) -> Result<PathBuf, RunError> {
    let candidates = match (plugin, env::var_os(VARIABLE)) {
        // Errors of a named file are reported when it is read.
        (Plugin::File(file), _) => return Ok(file.clone()),
        (Plugin::Installed, Some(said)) => return Ok(said.into()),
        (Plugin::Installed, None) => {
            let exe = env::current_exe().map_err(RunError::system("cannot find out where hydrant lies"))?;
            let folder = exe.parent().unwrap_or(&exe);
            [folder.join(FILE), folder.join("../lib").join(FILE)]
        }
    };
    let found = candidates.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| RunError::NoPlugin { searched: candidates.into() })
}

/// Returns the folder `hydrant` in the user's cache folder. None for a user without a home.
fn cache() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(folder.join("hydrant"))
}
