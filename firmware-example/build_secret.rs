//! Secret of a build, for build scripts: the text of the file that `HYDRANT_SECRET_FILE` names, as a constant.

use std::env;
use std::fs;
use std::path::Path;

/// Fewest bytes of a secret.
const SECRET_MIN: usize = 16;

/// Writes the secret to `secret.rs` in a folder. A board without one has no secret.
pub(crate) fn write(out: &Path) {
    println!("cargo::rerun-if-env-changed=HYDRANT_SECRET_FILE");
    let text = env::var_os("HYDRANT_SECRET_FILE").filter(|path| !path.is_empty()).and_then(|path| {
        println!("cargo::rerun-if-changed={}", Path::new(&path).display());
        match fs::read(&path) {
            Ok(text) if text.trim_ascii().len() >= SECRET_MIN => Some(text.trim_ascii().to_vec()),
            Ok(_) => {
                println!("cargo::error=HYDRANT_SECRET_FILE: a secret has at least {SECRET_MIN} bytes");
                None
            }
            Err(why) => {
                println!("cargo::error=HYDRANT_SECRET_FILE: {why}");
                None
            }
        }
    });
    let text = text.map_or_else(|| "None".to_owned(), |text| format!("Some(&{text:?})"));
    fs::write(out.join("secret.rs"), text).expect("cargo made the folder");
}
