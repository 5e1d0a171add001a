//! Tests of `--dry-run` from the command line to the text.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::*;
use crate::cli::{self, Action};

/// Host file that is removed on drop.
struct HostFile(PathBuf);

impl HostFile {
    fn new(name: &str, text: &[u8]) -> HostFile {
        let path = std::env::temp_dir().join(format!("hydrant-dry-run-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        HostFile(path)
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn described(line: &str, variables: &[(&str, &str)]) -> String {
    let mut words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    words.insert(0, "mpiexec".into());
    let mut plan = match cli::parse(words, Vec::new) {
        Ok(Action::Run(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    };
    let value =
        |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into());
    let environment = Environment { hostname: "here.example".to_owned(), variables: &value };
    let location = plan.locate(&environment).unwrap();
    match plan.options.json {
        Some(_) => document::describe(&plan, &location, &environment, OsStr::new("/usr/bin/hydrant")),
        None => describe(&plan, &location, &environment, OsStr::new("/usr/bin/hydrant")),
    }
    .unwrap()
}

const SLURM: [(&str, &str); 2] = [("SLURM_JOB_NODELIST", "n[01-02]"), ("SLURM_TASKS_PER_NODE", "4(x2)")];

#[test]
fn programs_without_a_number_of_ranks_fill_the_hosts() {
    let ranks = |line: &str, variables: &[(&str, &str)]| {
        described(line, variables).lines().next().unwrap().to_owned()
    };
    assert_eq!(ranks("a", &[]), "1 rank in all");
    assert_eq!(ranks("a", &SLURM), "8 ranks in all");
    assert_eq!(ranks("-n 2 a", &SLURM), "2 ranks in all");
    assert_eq!(ranks("a : -n 1 b : c", &SLURM), "17 ranks in all");
    assert_eq!(ranks("-hosts a:3,b -ppn 2 a", &[]), "4 ranks in all");
    assert_eq!(ranks("-hosts a:3,b -rr a", &[]), "2 ranks in all");
    assert_eq!(ranks("-launcher fork a", &[]), "1 rank in all");
}

#[test]
fn grid_engine_jobs_start_daemons_by_qrsh() {
    let hosts = HostFile::new("sge", b"n1.q 2 all.q@n1.q UNDEFINED\nn2.q 2 all.q@n2.q UNDEFINED\n");
    let of_job = [
        ("PE_HOSTFILE", hosts.0.to_str().unwrap()),
        ("HOSTNAME", "n1.q"),
        ("SGE_ROOT", "/opt/sge"),
        ("ARC", "lx-amd64"),
    ];
    let plan = described("-n 4 a", &of_job);
    let bootstrap = plan.lines().skip_while(|line| !line.starts_with("bootstrap")).collect::<Vec<_>>();
    assert_eq!(
        bootstrap[..3],
        [
            "bootstrap: qrsh, heartbeat 30 s",
            "  node 1: /usr/bin/hydrant daemon",
            "  node 2: /opt/sge/bin/lx-amd64/qrsh -inherit n2.q '/usr/bin/hydrant daemon'"
        ]
    );
}

#[test]
fn plans_read_as_reviewed() {
    let host_file = HostFile::new("plans", b"a slots=2 max_slots=3\nb:1 user=joe\nc\n");
    let file = format!("-f {} -n 2 ./server x'y : -n 5 ./worker", host_file.0.display());
    let many =
        "-hosts n[01-09]:2 -radix 2 -n 17 -bind-to user:0+1,2 -iface ib0 -heartbeat 2.5 -bootstrap local a";
    let plans = [
        described("-n 3 ./a.out", &[]),
        described(&file, &[]),
        described("-n 6 -map-by node ./a.out", &SLURM),
        described("-hosts a,b -bootstrap-exec /opt/ssh -ppn 3 -rank-by node -n 8 a", &[]),
        described(many, &[]),
        described("--nodes 2 -n 7 ./a.out", &SLURM),
        described("--nodes 2 -n 1 ./a.out", &SLURM),
        described("-hosts n[1-9] -bootstrap local -disable-auto-cleanup -n 9 a", &[]),
        // The head has room for those that join.
        described("-hosts n[1-9] -bootstrap local -disable-auto-cleanup -elastic 1000 -n 9 a", &[]),
        described("-hosts n[1-9] -bootstrap local -elastic 1027 -n 9 a", &[]),
    ];
    insta::assert_snapshot!(plans.join("\n"));
}

#[test]
fn plans_are_json() {
    let hosts = "--json -hosts a:2,b -bootstrap-exec /opt/ssh -n 2 ./server x'y : -n 2 ./worker";
    insta::assert_snapshot!(described("--json -n 3 ./a.out", &[]) + &described(hosts, &[]));
}
