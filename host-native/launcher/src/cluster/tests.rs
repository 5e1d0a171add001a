//! From command lines and environments to places.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::cli::{self, Action};

/// A file that is removed again.
pub(super) struct File(PathBuf);

impl File {
    pub(super) fn new(text: &[u8]) -> File {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hydrant-hosts-{}-{number}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        File(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn name(&self) -> &str {
        self.0.to_str().expect("a path of ASCII")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn plan(line: &str) -> Plan {
    let mut words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    words.insert(0, "mpiexec".into());
    match cli::parse(words, Vec::new()) {
        Ok(Action::Run(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    }
}

fn located(line: &str, environment: &[(&str, &str)]) -> Result<Location, ClusterError> {
    let value =
        |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    locate(&plan(line), &Surroundings { host: "here.example".to_owned(), variables: &value })
}

fn described(line: &str, environment: &[(&str, &str)]) -> String {
    let location = located(line, environment).unwrap();
    describe(&plan(line), &location, "here.example", OsStr::new("/usr/bin/hydrant")).unwrap()
}

const SLURM: [(&str, &str); 2] = [("SLURM_JOB_NODELIST", "n[01-02]"), ("SLURM_TASKS_PER_NODE", "4(x2)")];

#[test]
fn without_hosts_and_with_this_one_alone_it_stays_here() {
    let one = [("SLURM_JOB_NODELIST", "n01"), ("SLURM_TASKS_PER_NODE", "4"), ("SLURMD_NODENAME", "n01")];
    for (line, environment) in [
        ("-n 4 a", &[] as &[(&str, &str)]),
        ("-hosts here:2 -n 4 a", &[]),
        ("-host localhost a", &SLURM),
        ("-hosts here.example,here.example a", &[]),
        ("-n 4 a", &one),
    ] {
        assert_eq!(located(line, environment).unwrap(), Location::Here, "{line}");
    }
    for (line, environment) in [
        ("-hosts there a", &[] as &[(&str, &str)]),
        ("-hosts here,localhost a", &[]),
        ("-hosts here -bootstrap local a", &[]),
        ("-launcher fork a", &[]),
        ("a", &SLURM),
        ("a", &one[..2]),
    ] {
        assert!(matches!(located(line, environment), Ok(Location::Nodes(_))), "{line}");
    }
}

#[test]
fn what_is_asked_for_holds_over_what_is_found() {
    let layout = |line: &str, environment: &[(&str, &str)]| match located(line, environment) {
        Ok(Location::Nodes(layout)) => layout,
        other => panic!("{line}: {other:?}"),
    };
    let names = |layout: &Layout| -> Vec<String> {
        layout.placement.nodes().iter().map(|node| node.host.name.clone()).collect()
    };
    let found = layout("-n 8 a", &SLURM);
    assert_eq!((found.batch, &found.bootstrap), (Some(Batch::Slurm), &Bootstrap::Srun));
    assert_eq!(names(&found), ["n01", "n02"]);
    let named = layout("-hosts n02,x -n 8 a", &SLURM);
    assert_eq!(
        (named.batch, &named.bootstrap, names(&named)),
        (None, &Bootstrap::Srun, vec!["n02".into(), "x".into()])
    );
    assert_eq!(layout("-bootstrap ssh a", &SLURM).bootstrap, Bootstrap::Ssh);
    assert_eq!(layout("-hosts a,b a", &[]).bootstrap, Bootstrap::Ssh);
    // A broken allocation does no harm where hosts are named.
    let broken = [("SLURM_JOB_NODELIST", "n[1")];
    assert!(located("-hosts a,b a", &broken).is_ok() && located("a", &broken).is_err());
}

#[test]
fn a_single_host_that_is_full_is_full_here_too() {
    let file = File::new(b"localhost max_slots=2\n");
    let error = located(&format!("-f {} -n 3 a", file.name()), &[]).unwrap_err();
    assert!(matches!(error, ClusterError::Full { ranks: 3, room: 2 }), "{error}");
    assert_eq!(located(&format!("-f {} -n 2 a", file.name()), &[]).unwrap(), Location::Here);
}

#[test]
fn a_user_is_for_ssh() {
    let file = File::new(b"a user=joe\nlocalhost user=joe\n");
    let with = |bootstrap: &str| located(&format!("-hostfile {} {bootstrap} a", file.name()), &[]);
    assert!(matches!(with(""), Ok(Location::Nodes(_))));
    let error = with("-bootstrap srun").unwrap_err();
    assert!(matches!(error, ClusterError::User { bootstrap: "srun", .. }), "{error}");
}

#[test]
fn plans_read_as_reviewed() {
    let file = File::new(b"a slots=2 max_slots=3\nb:1 user=joe\nc\n");
    let file = format!("-f {} -n 2 ./server x'y : -n 5 ./worker", file.name());
    let many =
        "-hosts n[01-09]:2 -radix 2 -n 17 -bind-to user:0+1,2 -iface ib0 -heartbeat 2.5 -bootstrap local a";
    let plans = [
        described("-n 3 ./a.out", &[]),
        described(&file, &[]),
        described("-n 6 -map-by node ./a.out", &SLURM),
        described("-hosts a,b -bootstrap-exec /opt/ssh -ppn 3 -rank-by node -n 8 a", &[]),
        described(many, &[]),
    ];
    insta::assert_snapshot!(plans.join("\n"));
}
