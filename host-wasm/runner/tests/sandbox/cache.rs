//! Cache of compiled code: it is reused, and ignored where another user may have written it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{LIMITS, SEED, patient};
use hydrant_wasm::{Origin, Sandbox, Settings};

/// A small plugin, which compiles in no time.
fn plugin(dir: &Path) -> PathBuf {
    let file = dir.join("small.wasm");
    let module = wat::parse_str(r#"(module (memory (export "memory") 1 1))"#).unwrap();
    fs::write(&file, module).unwrap();
    file
}

fn origin(file: &Path, cache: &Path) -> Origin {
    let settings = Settings { cache: Some(cache.to_path_buf()), ..patient() };
    Sandbox::load(file, &settings).unwrap().origin()
}

/// The one file of the cache.
fn kept(cache: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn the_second_time_nothing_is_compiled() {
    let dir = tempfile::tempdir().unwrap();
    let (file, cache) = (plugin(dir.path()), dir.path().join("new/cache"));
    assert_eq!(origin(&file, &cache), Origin::Compiled);
    assert_eq!(origin(&file, &cache), Origin::Cached);
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(kept(&cache)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_others_may_have_written_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let (file, cache) = (plugin(dir.path()), dir.path().join("cache"));
    assert_eq!(origin(&file, &cache), Origin::Compiled);
    let code = kept(&cache);
    for (path, mode, own) in [(&code, 0o660, 0o600), (&code, 0o602, 0o600), (&cache, 0o770, 0o700)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(origin(&file, &cache), Origin::Compiled, "{} with mode {mode:o}", path.display());
        // A file that was replaced has its own mode again.
        fs::set_permissions(path, Permissions::from_mode(own)).unwrap();
        assert_eq!(origin(&file, &cache), Origin::Cached);
    }
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&code, &elsewhere).unwrap();
    symlink(&elsewhere, &code).unwrap();
    assert_eq!(origin(&file, &cache), Origin::Compiled, "a link leads elsewhere");
    let linked = dir.path().join("linked");
    symlink(&cache, &linked).unwrap();
    assert_eq!(origin(&file, &linked), Origin::Compiled, "so does one to a folder");
}

#[test]
fn damaged_code_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let (file, cache) = (plugin(dir.path()), dir.path().join("cache"));
    assert_eq!(origin(&file, &cache), Origin::Compiled);
    let code = kept(&cache);
    let whole = fs::read(&code).unwrap();
    for damaged in [&whole[..0], &whole[..whole.len() / 2], &[&whole[..], b"x"].concat()] {
        fs::write(&code, damaged).unwrap();
        assert_eq!(origin(&file, &cache), Origin::Compiled);
        assert_eq!(origin(&file, &cache), Origin::Cached, "what is compiled again is kept again");
    }
}

#[test]
fn a_job_runs_where_nothing_can_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("file");
    fs::write(&cache, "in the way").unwrap();
    let settings = Settings { cache: Some(cache), ..patient() };
    let sandbox = Sandbox::load(crate::common::file(), &settings).unwrap();
    assert_eq!(sandbox.origin(), Origin::Compiled);
    sandbox.server(LIMITS, SEED).unwrap();
}
