//! Programs that the tests start: built where they are missing, once for each test binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The build directory, from where the test itself lies: `target/debug/deps/test`.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the system tells a process its program");
    let deps = exe.parent().expect("a program lies in a folder");
    let profile =
        if deps.ends_with("deps") { deps.parent().expect("deps lies in a profile's folder") } else { deps };
    profile.parent().expect("a profile's folder lies in the build directory").to_path_buf()
}

/// The name of this machine.
pub fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The number of the first processor that this process may use.
pub fn first_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = list.expect("the kernel knows the processors of a process").trim();
    list.split([',', '-']).next().unwrap_or_default().to_owned()
}

/// The path of the `hydrant` command, as text for shell scripts.
pub fn hydrant_path() -> &'static str {
    hydrant_bin().to_str().expect("the build directory is text")
}

/// The `hydrant` command: `HYDRANT_BIN`, or built here, once.
pub fn hydrant_bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        if let Some(bin) = std::env::var_os("HYDRANT_BIN") {
            return PathBuf::from(bin);
        }
        let target = target_dir();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--package", "hydrant", "--bin", "hydrant", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .status()
            .expect("cargo runs, since it runs this test");
        assert!(status.success(), "building the hydrant command failed");
        target.join("debug/hydrant")
    })
}

/// A library for C programs beside the `hydrant` command; built here where that was.
pub fn library(package: &str, file: &str) -> PathBuf {
    let library = hydrant_bin().with_file_name(file);
    if std::env::var_os("HYDRANT_BIN").is_none() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--package", package, "--target-dir"])
            .arg(target_dir())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .status()
            .expect("cargo runs, since it runs this test");
        assert!(status.success(), "building {file} failed");
    }
    assert!(library.is_file(), "no {}: cargo build -p {package}", library.display());
    library
}

/// An example of a package, built here.
pub fn example(package: &str, name: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", package, "--example", name, "--target-dir"])
        .arg(target_dir())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .status()
        .expect("cargo runs, since it runs this test");
    assert!(status.success(), "building the example {name} failed");
    target_dir().join("debug/examples").join(name)
}

/// Runs a cargo command through `tests/cross`, on the workspace of that `Cargo.toml` for that target. Returns the folder that
/// holds a folder for each profile.
pub fn cross(target: &str, manifest: &Path, args: &[&str]) -> PathBuf {
    let (verb, args) = args.split_first().expect("a command of cargo's");
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("cross"))
        .args([target, verb, "--locked", "--manifest-path"])
        .arg(manifest)
        .args(args)
        .env("CARGO_TARGET_DIR", target_dir())
        // What cargo set for this test is not for another cargo.
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .stdin(Stdio::null())
        .output()
        .expect("tests/cross is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target_dir().join("cross").join(target)
}

/// The core as a plugin, `hydrant.wasm`: `HYDRANT_WASM`, or built here, once.
pub fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        if let Some(plugin) = std::env::var_os("HYDRANT_WASM") {
            return PathBuf::from(plugin);
        }
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-wasm/build");
        let mut command = Command::new(build);
        command.env("CARGO_TARGET_DIR", target_dir()).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(output.status.success(), "building hydrant.wasm failed");
        let path = String::from_utf8(output.stdout).expect("it prints a path");
        PathBuf::from(path.trim_end())
    })
}
