//! C programs with `libhydrant_mpi` in various places.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use hydrant_tests::peers::{clients_dir, peers_dir};
use hydrant_tests::target_dir;

/// What a program is built against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Against {
    /// `libhydrant_mpi` and nothing else.
    Hydrant,
    /// MPICH 5.0.2 with its own ABI, `libmpi.so.12`.
    Mpich,
    /// MPICH 5.0.2 with the standard ABI, `libmpi_abi.so.1`.
    Standard,
}

impl Against {
    /// Both libraries that it may stand in front of.
    pub(crate) const LIBRARIES: [Against; 2] = [Against::Mpich, Against::Standard];

    pub(super) fn compiler(self) -> PathBuf {
        match self {
            Against::Hydrant => "cc".into(),
            Against::Mpich => peers_dir().join("mpich/bin/mpicc"),
            Against::Standard => peers_dir().join("mpich/bin/mpicc_abi"),
        }
    }

    /// The program `tests/clients/NAME.c`, with `STOCK` defined where another library is behind. `linked` says whether
    /// `libhydrant_mpi` is linked in; a program that is for it alone has nothing else. Built once, because other tests run it.
    pub(crate) fn program(self, name: &str, linked: bool) -> PathBuf {
        type Built = HashMap<(Against, String, bool), PathBuf>;
        static BUILT: LazyLock<Mutex<Built>> = LazyLock::new(Mutex::default);
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        built.entry((self, name.to_owned(), linked)).or_insert_with(|| self.build(name, linked)).clone()
    }

    fn build(self, name: &str, linked: bool) -> PathBuf {
        let dir = target_dir().join("clients").join(format!("{self:?}-{linked}"));
        fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let program = dir.join(name);
        let library = library();
        let folder = library.parent().expect("a file lies in a folder");
        let mut command = Command::new(self.compiler());
        command
            .env_remove("LD_LIBRARY_PATH")
            .args(["-O1", "-Wall", "-Werror", "-pthread", "-o"])
            .arg(&program);
        command.arg("-I").arg(include_dir()).arg(clients_dir().join(format!("{name}.c")));
        if self != Against::Hydrant {
            command.arg("-DSTOCK");
        }
        if linked {
            let rpath = format!("-Wl,-rpath,{}", folder.display());
            command.arg("-L").arg(folder).arg("-lhydrant_mpi").arg(rpath);
        }
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        program
    }
}

/// `libhydrant_mpi.so`, built at most once.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| hydrant_tests::library("hydrant-mpi", "libhydrant_mpi.so"))
}

pub(super) fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host-native/mpi/include")
}
