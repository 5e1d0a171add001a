//! Real MPI libraries and process managers: where `tests/install` put them, and programs built against them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::target_dir;

/// A real implementation that tests run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// MPICH 5.0.2 from PyPI, with mpi4py. Speaks PMI-1.
    Mpich5,
    /// MPICH 4.0.2 from Debian. Speaks PMI-1.
    Mpich4,
    /// Open MPI 5.0.11 from PyPI, with mpi4py. Speaks PMIx by its own libpmix 5.
    OpenMpi5,
    /// Open MPI 4.1.4 from Debian, unpacked. Speaks PMIx by libpmix 4.2.2.
    OpenMpi4,
    /// Open MPI 4.1.8 from PyPI. Speaks PMIx by its own libpmix 3, whose integers have a fixed size.
    OpenMpi4Pmix3,
    /// Debian's libpmix 4.2.2, unpacked with Open MPI 4.
    Libpmix,
    /// Tools of libpmix 4.2.2 (`pps`), from Debian, unpacked.
    PmixTools,
    /// Intel MPI from PyPI. Speaks PMI-1, or PMI-2 through Slurm's library.
    Intel,
    /// Slurm's libpmi2 from Debian. Speaks PMI-2.
    SlurmPmi2,
    /// Slurm itself from Debian: srun and the daemons, which a test starts as root.
    Slurm,
    /// OpenSSH's server from Debian, for hosts made of namespaces, which takes root.
    Ssh,
    /// Grid Engine from Debian, unpacked, for hosts made of namespaces, which takes root.
    Sge,
    /// gfortran from Debian, on which its MPICH depends.
    Gfortran,
    /// QEMU's Arm machines from Debian, on which the firmware runs.
    Qemu,
    /// wasmtime for Python, from PyPI.
    Wasmtime,
    /// Node.js, whose WebAssembly is built in.
    Node,
    /// Chromium's headless shell from Debian, which draws pages.
    Chromium,
    /// TAP devices of Linux.
    Tap,
    /// bubblewrap from Debian, which makes containers without root.
    Bubblewrap,
}

impl Peer {
    /// The versions of Open MPI.
    pub const OPEN_MPI: [Peer; 3] = [Peer::OpenMpi5, Peer::OpenMpi4, Peer::OpenMpi4Pmix3];

    /// Its name in `HYDRANT_TESTS_ALLOW_MISSING`.
    pub const fn name(self) -> &'static str {
        match self {
            Peer::Mpich5 => "mpich5",
            Peer::Mpich4 => "mpich4",
            Peer::OpenMpi5 => "openmpi5",
            Peer::OpenMpi4 => "openmpi4",
            Peer::OpenMpi4Pmix3 => "openmpi4-pmix3",
            Peer::Libpmix => "libpmix",
            Peer::PmixTools => "pmix-tools",
            Peer::Intel => "intel",
            Peer::SlurmPmi2 => "slurm-pmi2",
            Peer::Slurm => "slurm",
            Peer::Ssh => "ssh",
            Peer::Sge => "sge",
            Peer::Gfortran => "gfortran",
            Peer::Qemu => "qemu",
            Peer::Wasmtime => "wasmtime",
            Peer::Node => "node",
            Peer::Chromium => "chromium",
            Peer::Tap => "tap",
            Peer::Bubblewrap => "bubblewrap",
        }
    }

    /// A file that is there when the peer is.
    fn witness(self) -> PathBuf {
        match self {
            Peer::Mpich5 => peers_dir().join("mpich/installed"),
            Peer::Mpich4 => "/usr/bin/mpicc.mpich".into(),
            Peer::OpenMpi5 => peers_dir().join("openmpi/installed"),
            Peer::OpenMpi4 => peers_dir().join("openmpi4/installed"),
            Peer::OpenMpi4Pmix3 => peers_dir().join("openmpi4-pmix3/installed"),
            Peer::Libpmix => openmpi4_lib().join("pmix2/include/pmix.h"),
            Peer::PmixTools => peers_dir().join("libpmix-bin/installed"),
            Peer::Intel => peers_dir().join("impi/installed"),
            Peer::SlurmPmi2 => "/usr/include/slurm/pmi2.h".into(),
            Peer::Slurm => "/usr/sbin/slurmctld".into(),
            Peer::Ssh => "/usr/sbin/sshd".into(),
            Peer::Sge => peers_dir().join("gridengine/installed"),
            Peer::Gfortran => "/usr/bin/gfortran".into(),
            Peer::Qemu => "/usr/bin/qemu-system-arm".into(),
            Peer::Wasmtime => peers_dir().join("wasmtime/installed"),
            Peer::Node => node(),
            Peer::Chromium => CHROMIUM.into(),
            Peer::Tap => "/dev/net/tun".into(),
            Peer::Bubblewrap => "/usr/bin/bwrap".into(),
        }
    }

    /// Whether to go on with this peer. A missing one fails the test, unless `HYDRANT_TESTS_ALLOW_MISSING` (a comma
    /// list of names, or `all`) says that it may be missing, or the kernel does not allow it: then this says so on standard error.
    #[track_caller]
    pub fn there(self) -> bool {
        let Some(lack) = self.lack() else { return true };
        let allowed = std::env::var("HYDRANT_TESTS_ALLOW_MISSING").unwrap_or_default();
        // What the kernel of this machine does not allow, tests/install cannot add.
        let of_kernel = self == Peer::Tap || self == Peer::Bubblewrap && self.witness().exists();
        let skip = of_kernel || allowed.split(',').any(|name| name == self.name() || name == "all");
        let name = self.name();
        assert!(
            skip,
            "{name} is missing ({lack}): run tests/install, or allow it with HYDRANT_TESTS_ALLOW_MISSING={name}"
        );
        crate::tell(&format!("SKIPPED: {name} is missing ({lack})"));
        false
    }

    /// What is not there that should be.
    fn lack(self) -> Option<String> {
        let witness = self.witness();
        if !witness.exists() {
            return Some(format!("no {}", witness.display()));
        }
        if self == Peer::Bubblewrap {
            let trial =
                Command::new(witness).args(["--dev-bind", "/", "/", "--unshare-user", "true"]).output();
            let allowed = trial.is_ok_and(|trial| trial.status.success());
            return (!allowed).then(|| "no user namespaces".to_owned());
        }
        let by_root = matches!(self, Peer::Slurm | Peer::Ssh | Peer::Sge | Peer::Tap);
        (by_root && !rustix::process::geteuid().is_root()).then(|| "only root can start it".to_owned())
    }

    /// The command that builds C programs against it, and what goes behind the source.
    fn compiler(self) -> (PathBuf, Vec<OsString>) {
        match self {
            Peer::Mpich5 => (peers_dir().join("mpich/bin/mpicc"), vec![]),
            Peer::Mpich4 => ("/usr/bin/mpicc.mpich".into(), vec![]),
            Peer::OpenMpi5 => (peers_dir().join("openmpi/bin/mpicc"), vec![]),
            Peer::OpenMpi4Pmix3 => (peers_dir().join("openmpi4-pmix3/bin/mpicc"), vec![]),
            Peer::OpenMpi4 => {
                let lib = openmpi4_lib();
                let [mut include, mut search] = ["-I", "-Wl,-rpath-link,"].map(OsString::from);
                include.push(lib.join("openmpi/include"));
                search.push(&lib);
                ("cc".into(), vec![include, lib.join("libmpi.so.40").into(), search])
            }
            Peer::Libpmix => {
                let lib = openmpi4_lib();
                let [mut include, mut search] = ["-I", "-Wl,-rpath-link,"].map(OsString::from);
                include.push(lib.join("pmix2/include"));
                search.push(&lib);
                ("cc".into(), vec![include, lib.join("libpmix.so.2").into(), search])
            }
            Peer::Intel => panic!("the package from PyPI brings no compiler wrapper, only its own programs"),
            Peer::SlurmPmi2 => ("cc".into(), vec!["-lpmi2".into()]),
            Peer::Slurm | Peer::Ssh | Peer::Sge => panic!("no library to build programs against"),
            Peer::PmixTools => panic!("programs that are ready"),
            Peer::Qemu => panic!("firmware is built by firmware-example/build"),
            Peer::Gfortran | Peer::Wasmtime | Peer::Node | Peer::Chromium | Peer::Tap | Peer::Bubblewrap => {
                panic!("C programs are not built against it")
            }
        }
    }

    /// The program `tests/clients/NAME.c` built against it, once a run of the tests.
    pub fn program(self, name: &str) -> PathBuf {
        type Built = HashMap<(Peer, String), PathBuf>;
        static BUILT: LazyLock<Mutex<Built>> = LazyLock::new(Mutex::default);
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        built.entry((self, name.to_owned())).or_insert_with(|| self.build(name)).clone()
    }

    /// Variables of Open MPI's ranks: `folder` for temporary files, in which Open MPI removes files, and where the unpacked
    /// one has its own.
    pub fn variables(self, folder: &Path) -> Vec<(&'static str, OsString)> {
        // More ranks than processors.
        let mut variables = vec![("TMPDIR", folder.into()), ("OMPI_MCA_mpi_yield_when_idle", "1".into())];
        if self == Peer::OpenMpi4 {
            variables.extend(openmpi4_variables());
        }
        variables
    }

    fn build(self, name: &str) -> PathBuf {
        let dir = target_dir().join("clients").join(self.name());
        fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        // Built aside and renamed, because other test programs build the same at the same time.
        let aside = dir.join(format!("{name}.{}", std::process::id()));
        let (compiler, behind) = self.compiler();
        let mut command = Command::new(compiler);
        command.env_remove("LD_LIBRARY_PATH").args(["-O1", "-Wall", "-o"]).arg(&aside);
        command.arg(clients_dir().join(format!("{name}.c"))).args(behind);
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        let program = dir.join(name);
        fs::rename(&aside, &program).unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        program
    }
}

/// Where `tests/install` puts what comes from PyPI, and what it only unpacks.
pub fn peers_dir() -> PathBuf {
    target_dir().join("peers")
}

/// Where Debian's Open MPI 4 has its libraries.
pub fn openmpi4_lib() -> PathBuf {
    peers_dir().join("openmpi4/usr/lib/x86_64-linux-gnu")
}

/// Variables by which Debian's Open MPI finds its files below `target/peers`.
pub fn openmpi4_variables() -> Vec<(&'static str, OsString)> {
    let (root, lib) = (peers_dir().join("openmpi4/usr"), openmpi4_lib());
    let path = ["", "openmpi/lib", "pmix2/lib"].map(|part| lib.join(part).display().to_string());
    vec![
        ("LD_LIBRARY_PATH", path.join(":").into()),
        ("OPAL_PREFIX", root.clone().into()),
        ("PMIX_INSTALL_PREFIX", root.clone().into()),
        ("OPAL_LIBDIR", lib.join("openmpi/lib").into()),
        ("OPAL_PKGLIBDIR", lib.join("openmpi/lib/openmpi3").into()),
        ("OPAL_DATADIR", root.join("share").into()),
        ("OMPI_MCA_mca_base_component_show_load_errors", "0".into()),
    ]
}

/// The sources of the programs.
pub fn clients_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// The browser without a screen.
pub const CHROMIUM: &str = "/usr/bin/chromium-headless-shell";

/// The launcher of MPICH 4.0.2 (hydra).
pub const MPIEXEC_4: &str = "/usr/bin/mpiexec.hydra";

/// The launcher of MPICH 5.0.2 (hydra).
pub fn mpiexec_5() -> PathBuf {
    peers_dir().join("mpich/bin/mpiexec")
}

/// The Python that has mpi4py and MPICH 5.0.2.
pub fn python() -> PathBuf {
    peers_dir().join("mpich/bin/python")
}

/// The Python that has mpi4py and Open MPI 5.
pub fn openmpi_python() -> PathBuf {
    peers_dir().join("openmpi/bin/python")
}

/// The Python that has wasmtime.
pub fn wasmtime_python() -> PathBuf {
    peers_dir().join("wasmtime/bin/python")
}

/// Node.js, where `PATH` finds it; else where Debian has it.
pub fn node() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("node")).find(|node| node.is_file());
    found.unwrap_or_else(|| "/usr/bin/node".into())
}

/// The folder of Intel MPI's own programs.
pub fn intel_bin() -> PathBuf {
    peers_dir().join("impi/bin")
}

/// The folder of Intel MPI's libraries, which its programs do not find by themselves.
pub fn intel_lib() -> PathBuf {
    peers_dir().join("impi/lib")
}

/// Slurm's PMI-2 client library.
pub const SLURM_LIBPMI2: &str = "/usr/lib/x86_64-linux-gnu/libpmi2.so.0";
